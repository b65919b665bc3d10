"""The edge to torch: functions for any module, and the only place that uses private names of torch."""
