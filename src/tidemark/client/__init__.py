"""What sends to a Tidemark over the network, and loses nothing. Needs neither Arrow nor Spark."""
