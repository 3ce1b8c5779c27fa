"""Models of execution: ranks that are not equally fast, and what their waiting costs."""
