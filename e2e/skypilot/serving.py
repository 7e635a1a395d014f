"""Writes what SkyPilot's own classes decide about random services and pools: `serving.py SEED COUNT DIR` makes DIR/autoscaler.json,
DIR/balancer.json and DIR/spot-placer.json, in the form of the recordings of these names. COUNT is the number of cases of all three together.

Replicas, jobs, requests and time are stand-ins; a round robin shuffles nothing. `cargo xtask skypilot-goldens DIR` replays the files.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import tempfile
import types
from pathlib import Path

os.environ.update(HOME=tempfile.mkdtemp(), SKYPILOT_DISABLE_USAGE_COLLECTION="1")
with contextlib.redirect_stdout(sys.stderr):
    from sky.jobs import state as managed_job_state
    from sky.serve import autoscalers, load_balancing_policies, serve_state, serve_utils, service_spec, spot_placer

    autoscalers.logger.setLevel("CRITICAL")
    load_balancing_policies.logger.setLevel("CRITICAL")
    spot_placer.logger.setLevel("CRITICAL")

STATUS = serve_state.ReplicaStatus
STEPS = 22
GPUS = ["A100:1", "L4:1", "T4:1", "V100:1"]
NEXT = {
    "PENDING": ["PENDING", "PROVISIONING"],
    "PROVISIONING": ["PROVISIONING", "STARTING"],
    "STARTING": ["STARTING", "READY", "READY"],
    "READY": ["READY"] * 16 + ["NOT_READY", "FAILED_PROBING", "PREEMPTED", "FAILED"],
    "NOT_READY": ["READY", "READY", "NOT_READY"],
}


class Replica:
    """What an autoscaler sees of a replica."""

    def __init__(self, number: int, version: int, kind: str, chance: random.Random):
        self.replica_id, self.version, self.kind = number, version, kind
        self.cluster_name = f"c-{number}"
        self.name = chance.choice(["PENDING", "PROVISIONING"])
        self.is_spot, self.gpu, self.jobs, self.fatal, self.was_ready = False, chance.choice(GPUS), 0, False, False
        self.status_property = types.SimpleNamespace(unrecoverable_failure=lambda: self.fatal)

    status = property(lambda self: STATUS(self.name))
    is_terminal = property(lambda self: self.status in STATUS.terminal_statuses())
    is_ready = property(lambda self: self.name == "READY")

    def handle(self) -> types.SimpleNamespace:
        return types.SimpleNamespace(launched_resources=types.SimpleNamespace(accelerators={self.gpu.split(":")[0]: 1}))

    def written(self) -> dict:
        out = {"id": self.replica_id, "version": self.version, "status": self.name}
        if self.kind == "fallback":
            out["spot"] = self.is_spot
        if self.kind == "instances":
            out["gpu"] = self.gpu
        if self.kind == "queue":
            out["jobs"] = self.jobs
        if self.fatal:
            out["unrecoverable"] = True
        return out


def service(kind: str, chance: random.Random) -> dict:
    least = chance.randint(0 if kind in ("requests", "queue") else 1, 3)
    if kind == "queue":
        if chance.random() < 0.2:
            return {"pool": {"workers": max(least, 1)}}
        return {
            "pool": {
                "min_workers": least, "max_workers": max(least, 1) + chance.randint(0, 4),
                "queue_length_threshold": chance.choice([1, 2, 5]), **delays(chance),
            }
        }
    policy: dict = {"min_replicas": least}
    if kind != "fixed":
        policy |= {"max_replicas": max(least, 1) + chance.randint(0, 4), "target_qps_per_replica": chance.choice([0.5, 1, 2, 2.5, 10]), **delays(chance)}
    if kind in ("requests", "fallback") and chance.random() < 0.3:
        policy["num_overprovision"] = chance.randint(1, 2)
    if kind == "fallback":
        policy |= chance.choice([{"dynamic_ondemand_fallback": True}, {"base_ondemand_fallback_replicas": chance.randint(1, least)}])
    out = {"readiness_probe": "/", "replica_policy": policy}
    if kind == "instances":
        policy["target_qps_per_replica"] = {"A100:1": 10, "L4:1": 4, "T4": 2}
        out["load_balancing_policy"] = "instance_aware_least_load"
    return out


def delays(chance: random.Random) -> dict:
    return {"upscale_delay_seconds": chance.choice([20, 40, 60, 300]), "downscale_delay_seconds": chance.choice([20, 40, 100, 1200])}


def spec(section: dict) -> service_spec.SkyServiceSpec:
    return service_spec.SkyServiceSpec.from_yaml_config(section)


def trace(name: str, chance: random.Random) -> dict:
    kind = chance.choice(["fixed", "requests", "fallback", "instances", "queue"])
    section = service(kind, chance)
    scaler = autoscalers.Autoscaler.from_spec("s", spec(section))
    replicas: list[Replica] = []
    made, load, at, steps, version, active = 0, 0, 0.0, [], 1, []
    by_cluster = lambda _pool, cluster_name=None: [1] * next((r.jobs for r in replicas if r.cluster_name == cluster_name), 0)
    managed_job_state.get_nonterminal_job_ids_by_pool = by_cluster
    managed_job_state.get_nonterminal_job_counts_by_pool = lambda _pool: {r.cluster_name: r.jobs for r in replicas}
    managed_job_state.get_pending_jobs_count_by_pool = lambda _pool: load
    update_at = chance.randint(4, 14) if kind != "instances" and chance.random() < 0.5 else -1
    for index in range(STEPS):
        step: dict = {"at": at}
        if index == update_at:
            version, mode = 2, chance.choice(["rolling", "blue_green"])
            newer = service(kind, chance)
            if ("workers" in newer.get("pool", {})) != ("workers" in section.get("pool", {})):
                newer = json.loads(json.dumps(section))
            # SkyPilot keeps the reserve of the first version for good, and its target and threshold for the first look; here the newest count
            older, policy = (one.get("replica_policy", one.get("pool")) for one in (section, newer))
            for kept in ("num_overprovision", "target_qps_per_replica", "queue_length_threshold"):
                policy.pop(kept, None)
                policy |= {kept: older[kept]} if kept in older else {}
            scaler.update_version(version, spec(newer), serve_utils.UpdateMode(mode))
            step["update"] = {"version": version, "mode": mode, "service": newer, "target": scaler.target_num_replicas}
        if kind == "queue":
            load = max(0, load + chance.randint(-3, 4)) if chance.random() < 0.8 else 0
            step["pending"] = load
        else:
            load = chance.choice([load, load, max(0, load + chance.randint(-600, 700)), chance.choice([0, 60, 1200, 3600])])
            step["in_window"] = load
            if hasattr(scaler, "request_timestamps"):
                scaler.request_timestamps = [0.0] * load
        step |= {"active_versions": active, "replicas": [replica.written() for replica in replicas]}
        decisions = []
        for decision in scaler.generate_scaling_decisions(replicas, active):
            decisions.append([decision.operator.value, decision.target])
        step |= {"decisions": decisions, "target": scaler.target_num_replicas, "next_in": scaler.get_decision_interval()}
        steps.append(step)
        at += step["next_in"]
        for operator, target in decisions:
            if operator == "scale_up":
                made += 1
                replica = Replica(made, version, kind, chance)
                replica.is_spot = bool(target and target.get("use_spot"))
                replicas.append(replica)
            else:
                next(r for r in replicas if r.replica_id == target).name = "SHUTTING_DOWN"
        for replica in replicas:
            if replica.name in NEXT and chance.random() < 0.8:
                replica.name = chance.choice(NEXT[replica.name])
                if replica.name == "STARTING" and chance.random() < 0.03:
                    replica.name, replica.fatal = "FAILED", True
            replica.jobs = chance.randint(0, 2) if replica.name == "READY" else 0
        gone = ("SHUTTING_DOWN", "PREEMPTED", "FAILED_PROBING")
        replicas = [r for r in replicas if not (r.name in gone and chance.random() < 0.6)]
        ready = sorted({r.version for r in replicas if r.is_ready})
        active = ready if scaler.update_mode == serve_utils.UpdateMode.ROLLING else ready[-1:]
    return {"name": name, "service": section, "steps": steps}


def balanced(name: str, chance: random.Random) -> dict:
    policy = chance.choice(["least_load", "round_robin", "instance_aware_least_load"])
    load_balancing_policies.random.shuffle = lambda _: None
    balancer = load_balancing_policies.LoadBalancingPolicy.make(policy)
    everyone = [f"r{number}" for number in range(1, chance.randint(2, 7))]
    ops, flying, made = [], {}, 0
    if policy == "instance_aware_least_load":
        info = {replica: {"gpu_type": chance.choice(["A100", "L4", "T4", "H100"])} for replica in everyone}
        targets = {"A100:1": 10, "L4": 4, "T4:1": chance.choice([0, 2])}
        balancer.set_replica_info(info)
        balancer.set_target_qps_per_accelerator(targets)
        ops.append({"op": "info", "replicas": info, "target_qps": targets})
    for index in range(60):
        kind = "ready" if index == 0 else chance.choices(["ready", "request", "done"], [1, 6, 4])[0]
        if kind == "ready":
            ready = [replica for replica in everyone if chance.random() < 0.7]
            balancer.set_ready_replicas(list(ready))
            ops.append({"op": "ready", "replicas": ready})
        elif kind == "request":
            made += 1
            replica = balancer._select_replica(None)
            if replica is not None:
                balancer.pre_execute_hook(replica, None)
                flying[made] = replica
            ops.append({"op": "request", "id": made, "replica": replica})
        elif flying:
            number = chance.choice(list(flying))
            balancer.post_execute_hook(flying.pop(number), None)
            ops.append({"op": "done", "id": number})
    return {"name": f"{policy}-{name}", "policy": policy, "ops": ops}


def placed(name: str, chance: random.Random) -> dict:
    zones = [f"us-{side}-{number}{letter}" for side in ("east", "west") for number in (1, 2) for letter in "ab"]
    zones = chance.sample(zones, chance.randint(1, len(zones)))
    prices = chance.sample(range(10, 400), len(zones))
    placer = spot_placer.DynamicFallbackSpotPlacer.__new__(spot_placer.DynamicFallbackSpotPlacer)
    places = {zone: spot_placer.Location(Cloud(), zone[:-1], zone) for zone in zones}
    placer.location2status = dict.fromkeys(places.values(), spot_placer.LocationStatus.ACTIVE)
    placer.location2cost = {places[zone]: price / 100 for zone, price in zip(zones, prices, strict=True)}
    active = lambda: sorted(place.zone for place in placer.active_locations())
    ops, used = [], []
    for _ in range(25):
        kind = chance.choices(["next", "preempted", "ended", "active"], [5, 3, 1, 1])[0]
        if kind == "next":
            zone = placer.select_next_location([places[one] for one in used]).zone
            ops.append({"op": "next", "used": list(used), "zone": zone})
            used.append(zone)
            continue
        zone = chance.choice(used or zones)
        if kind == "ended":
            ops.append({"op": "ended", "zone": zone})
        else:
            (placer.set_preemptive if kind == "preempted" else placer.set_active)(places[zone])
            ops.append({"op": kind, "zone": zone, "active": active()})
        if kind != "active" and zone in used:
            used.remove(zone)
    locations = [{"zone": zone, "region": zone[:-1], "hourly": price / 100} for zone, price in zip(zones, prices, strict=True)]
    return {"name": name, "locations": locations, "ops": ops}


class Cloud:
    def is_same_cloud(self, _: object) -> bool:
        return True

    def __str__(self) -> str:
        return "cloud"


def main() -> None:
    seed, count, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    kinds = [("autoscaler", trace, count * 6 // 10), ("balancer", balanced, count * 3 // 10), ("spot-placer", placed, count // 10)]
    for kind, make, many in kinds:
        cases = [make(f"{kind}-{number}", random.Random(f"{seed} {kind} {number}")) for number in range(many)]
        lines = ",\n".join(json.dumps(case) for case in cases)
        (folder / f"{kind}.json").write_text(f'{{"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
