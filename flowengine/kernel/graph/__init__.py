"""The compiled flow: plain data that is stored, and the linked form that the kernel runs."""
