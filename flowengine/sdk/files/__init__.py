"""Files and directories, in which no path leads out of the one that it was given for."""
