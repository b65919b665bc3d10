"""The networks and data sets of the paper."""
