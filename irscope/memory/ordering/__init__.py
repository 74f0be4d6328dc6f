"""Orders of operators that need little memory, and proof of how little any order can need."""
