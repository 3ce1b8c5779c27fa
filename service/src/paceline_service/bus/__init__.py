"""Scale-out: gateways put frames on NATS JetStream, analyzers own partitions of jobs by leases.

Nothing here is imported without ``--bus`` (docs/scale-out.md).
"""
