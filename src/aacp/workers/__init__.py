"""Workers: estimates on several processes and machines. The search itself stays in one process."""
