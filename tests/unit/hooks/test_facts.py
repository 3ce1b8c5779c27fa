from __future__ import annotations

import socket

from paceline.hooks.facts import MAX_CHARS, process_facts

SECRETS = {
    "HF_TOKEN": "hf_secret",
    "WANDB_API_KEY": "secret-key",
    "PACELINE_TOKEN": "secret-token",
    "SLURM_JWT": "secret.jwt",
    "AWS_SECRET_ACCESS_KEY": "secret-aws",
}


def test_a_slurm_job_is_described() -> None:
    facts = process_facts(
        {
            "SLURM_JOB_ID": "4711",
            "SLURM_STEP_ID": "0",
            "SLURM_JOB_NODELIST": "gpu[01-04]",
            "SLURM_PROCID": "3",
            "SLURM_RESTART_COUNT": "1",
        }
    )
    assert facts["slurm_job_id"] == "4711"
    assert facts["slurm_nodelist"] == "gpu[01-04]"
    assert facts["slurm_restart_count"] == "1"
    assert facts["launcher"] == "slurm"
    assert facts["hostname"] == socket.gethostname()


def test_a_pod_is_described() -> None:
    facts = process_facts(
        {
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "POD_NAME": "bert-worker-1",
            "POD_NAMESPACE": "research",
            "NODE_NAME": "node-7",
            "TORCHELASTIC_RUN_ID": "x",
        }
    )
    assert facts["k8s_pod"] == "bert-worker-1"
    assert (facts["k8s_namespace"], facts["k8s_node"]) == ("research", "node-7")
    assert (facts["launcher"], facts["container"]) == ("torchrun", "kubernetes")


def test_nothing_secret_is_told() -> None:
    env = {**SECRETS, "SLURM_JOB_ID": "1", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    told = " ".join(process_facts(env).values())
    assert not [secret for secret in SECRETS.values() if secret in told]


def test_facts_are_short_and_printable() -> None:
    facts = process_facts({"SLURM_JOB_NODELIST": "n" * 5000, "RAY_JOB_ID": "\udcff\n\0"})
    assert len(facts["slurm_nodelist"]) == MAX_CHARS
    assert facts["ray_job_id"] == "???"
    assert all(value.isprintable() for value in facts.values())
