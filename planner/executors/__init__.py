"""What carries plans out, one file each."""
