"""Moving an execution to another form of its flow."""
