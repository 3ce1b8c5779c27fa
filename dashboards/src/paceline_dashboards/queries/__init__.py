"""The queries of the dashboards: PromQL over the agent's catalogue of metrics, and SQL."""
