"""From the models of a flow file to the compiled form that the kernel walks over."""
