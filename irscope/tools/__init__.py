"""Common ground of the commands and the Python interface: functions that answer a question about models with reports."""
