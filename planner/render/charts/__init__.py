"""Pictures drawn by matplotlib, which nothing outside this package imports."""
