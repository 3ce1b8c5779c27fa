"""Paceline's Grafana dashboards, as code."""
