"""What Paceline costs and what it carries, measured in pairs within one run."""
