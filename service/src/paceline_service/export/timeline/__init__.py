"""Steps of a job as a trace for Perfetto, with waits marked and who came last."""
