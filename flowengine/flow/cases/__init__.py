"""Files of test cases for flows, and how they and flow files are found."""
