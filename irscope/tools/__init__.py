"""What the commands and the Python interface have in common: functions that answer a question about models with reports."""
