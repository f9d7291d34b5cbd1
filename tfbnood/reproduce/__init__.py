"""Tables and figures made again by one command, `tfbnood reproduce WHAT`, stage by stage."""
