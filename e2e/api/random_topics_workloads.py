"""More topics of `random_topics.py`: the kinds that run pods, what they may be and what of them may change, and how pods go."""

from __future__ import annotations

import copy

from random_api import PARTIAL, PARTIALS, TABLE, Step
from random_topics import CORE, Rng, apply, container, delete, get, patch, pod, post, put, topic

PARTS: dict[str, list[dict]] = {
    "deployments": [
        {"replicas": -1}, {"replicas": 3}, {"selector": None}, {"selector": {"matchLabels": {"app": "b"}}}, {"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, {"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}, {"strategy": {"type": "Odd"}}, {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}},
        {"strategy": {"rollingUpdate": {"maxUnavailable": "150%"}}}, {"strategy": {"rollingUpdate": {"maxSurge": "x"}}}, {"minReadySeconds": -1}, {"minReadySeconds": 700}, {"progressDeadlineSeconds": 5, "minReadySeconds": 9}, {"progressDeadlineSeconds": 0}, {"revisionHistoryLimit": -1}, {"revisionHistoryLimit": 0}, {"paused": True}, {"selector": {}},
    ],
    "replicasets": [{"replicas": -1}, {"replicas": 2}, {"selector": None}, {"selector": {"matchLabels": {"app": "b"}}}, {"minReadySeconds": -1}, {"minReadySeconds": 4}, {"selector": {"matchExpressions": [{"key": "app", "operator": "Odd"}]}}, {"selector": {"matchLabels": {"a b": "c"}}}],
    "statefulsets": [
        {"replicas": -1}, {"serviceName": "s"}, {"serviceName": "Bad_"}, {"podManagementPolicy": "Parallel"}, {"podManagementPolicy": "Odd"}, {"updateStrategy": {"type": "OnDelete"}}, {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}}, {"updateStrategy": {"rollingUpdate": {"partition": -1}}}, {"updateStrategy": {"type": "Odd"}},
        {"ordinals": {"start": -1}}, {"ordinals": {"start": 5}}, {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Odd"}}, {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}, {"minReadySeconds": -1}, {"revisionHistoryLimit": -1}, {"selector": {"matchLabels": {"app": "b"}}}, {"selector": None},
        {"volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}, {"volumeClaimTemplates": [{"metadata": {"name": "d"}}]}, {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}},
    ],
    "daemonsets": [
        {"selector": None}, {"selector": {"matchLabels": {"app": "b"}}}, {"updateStrategy": {"type": "OnDelete"}}, {"updateStrategy": {"type": "Odd"}}, {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}}, {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}}, {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "200%"}}},
        {"updateStrategy": {"rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 0}}}, {"minReadySeconds": -1}, {"revisionHistoryLimit": -1}, {"minReadySeconds": 3},
    ],
    "replicationcontrollers": [{"replicas": -1}, {"replicas": 2}, {"selector": {"app": "b"}}, {"selector": None}, {"selector": {}}, {"minReadySeconds": -1}, {"template": None}],
    "cronjobs": [
        {"schedule": ""}, {"schedule": "61 * * * *"}, {"schedule": "@hourly"}, {"schedule": "TZ=UTC * * * * *"}, {"timeZone": "Etc/UTC"}, {"timeZone": "Odd/Zone"}, {"timeZone": ""}, {"timeZone": "Local"}, {"concurrencyPolicy": "Odd"}, {"concurrencyPolicy": "Forbid"}, {"startingDeadlineSeconds": -1}, {"startingDeadlineSeconds": 5}, {"suspend": True},
        {"successfulJobsHistoryLimit": -1}, {"failedJobsHistoryLimit": 0}, {"jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Always", "containers": [container()]}}}}}, {"jobTemplate": {"spec": {"manualSelector": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container()]}}}}}, {"schedule": "* * * *"}, {"jobTemplate": {}},
    ],
}  # fmt: skip
TEMPLATES: list[dict] = [
    {"spec": {"restartPolicy": "Never", "containers": [container()]}}, {"spec": {"containers": []}}, {"spec": {"containers": [container(), container()]}}, {"metadata": {"labels": {"app": "other"}}}, {"metadata": None}, {"spec": {"activeDeadlineSeconds": 5, "containers": [container()]}}, {"spec": {"containers": [container("Bad_")]}},
    {"spec": {"containers": [container(image="")]}}, {"spec": {"terminationGracePeriodSeconds": -1, "containers": [container()]}}, {"metadata": {"labels": {"app": "a"}, "annotations": {"a b": "c"}}},
]  # fmt: skip


@topic
def workloads(rng: Rng, ns: str) -> list[Step]:
    """Deployments, sets, controllers and cron jobs that nobody runs: what they may be, and what of them may change."""
    plural = rng.choice(sorted(PARTS))
    version = {"cronjobs": "batch/v1", "replicationcontrollers": "v1"}.get(plural, "apps/v1")
    kind = {"deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet", "daemonsets": "DaemonSet", "replicationcontrollers": "ReplicationController", "cronjobs": "CronJob"}[plural]
    path = f"{CORE}{ns}/{plural}" if version == "v1" else f"/apis/{version}/namespaces/{ns}/{plural}"
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container()]}}

    def made(name: str, *parts: dict) -> dict:
        if plural == "cronjobs":
            spec: dict = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container()]}}}}}
        else:
            spec = {"selector": {"app": "a"} if version == "v1" else {"matchLabels": {"app": "a"}}, "template": copy.deepcopy(template)}
            spec |= {} if plural == "daemonsets" else {"replicas": 0}
        for part in parts:
            spec |= copy.deepcopy(part)
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": {"app": "a"}}, "spec": spec}

    def part() -> dict:
        if plural != "cronjobs" and rng.random() < 0.25:
            return {"template": {**template, **rng.choice(TEMPLATES)}}
        return rng.choice(PARTS[plural])

    dry = "?dryRun=All"
    steps = [post(path, made(f"n{i}", part(), *([part()] if rng.random() < 0.25 else [])), dry) for i in range(6)]
    steps += [post(path, made("a")), get(path + "/a")]
    for _ in range(9):
        spec, q = copy.deepcopy(part()), rng.choice([dry, dry, ""])
        steps.append(rng.choice([patch(path + "/a", "merge", {"spec": spec}, q), patch(path + "/a", "strategic", {"spec": spec}, q), put(path + "/a", made("a", spec), q), apply(path + "/a", made("a", spec), "m", True, "&dryRun=All"),
                                 patch(path + "/a/status", "merge", {"status": rng.choice([{"replicas": 1}, {"replicas": -1}, {"observedGeneration": -1}, {"readyReplicas": 2, "replicas": 1}, {"availableReplicas": 1, "readyReplicas": 0, "replicas": 2}, {"conditions": [{"type": "X", "status": "True"}]}, {"currentNumberScheduled": -1}])}, dry)]))  # fmt: skip
    return [*steps, get(path + "/a", TABLE), get(path, rng.choice([TABLE, PARTIALS])), get(path + "/a", PARTIAL), delete(path + "/a" + dry), delete(path + "/a", {"propagationPolicy": rng.choice(["Odd", "Orphan", "Background"]), "dryRun": ["All"]})]


@topic
def departures(rng: Rng, ns: str) -> list[Step]:
    """Pods that go: with and without grace, finalizers, a node and preconditions, alone and together, as watches tell of it."""
    path = CORE + ns + "/pods"
    steps: list[Step] = []
    names = ["a", "b", "c"]
    for i, name in enumerate(names):
        o = pod(name, **rng.choice([{}, {}, {"nodeName": "none"}, {"terminationGracePeriodSeconds": rng.choice([0, 1, 60])}]))
        o["metadata"]["labels"] = {"app": rng.choice(["one", "two"])}
        o["metadata"] |= rng.choice([{}, {}, {"finalizers": ["example.com/f"]}])
        step = post(path, o)
        step.save = f"made{i}"
        steps.append(step)
    if rng.random() < 0.4:
        steps.append(patch(path + "/a/status", "merge", {"status": {"phase": rng.choice(["Running", "Succeeded", "Failed"])}}))
    grace = lambda: rng.choice([{}, {"gracePeriodSeconds": 0}, {"gracePeriodSeconds": 0}, {"gracePeriodSeconds": 5}, {"gracePeriodSeconds": -1}, {"preconditions": {"uid": "${uid}"}}, {"preconditions": {"resourceVersion": "${made0_rv}"}}])
    query = lambda: rng.choice(["", "", "?dryRun=All"])
    for _ in range(7):
        name = rng.choice(names)
        steps.append(rng.choice([
            lambda: delete(f"{path}/{name}{query()}", grace()), lambda: delete(f"{path}/{name}?gracePeriodSeconds={rng.choice(['0', '3', 'x'])}"), lambda: patch(f"{path}/{name}", "merge", {"metadata": {"finalizers": rng.choice([None, ["example.com/g"]])}}), lambda: get(f"{path}/{name}"),
            lambda: delete(f"{path}?labelSelector=app%3D{rng.choice(['one', 'two'])}", grace()), lambda: post(f"{path}/{name}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **rng.choice([{}, {"deleteOptions": {"gracePeriodSeconds": 0}}])}, query()),
        ])())  # fmt: skip
    return [*steps, get(path), *(get(f"{path}?watch=true&timeoutSeconds=1&resourceVersion=${{made2_rv}}{more}") for more in ("", "&labelSelector=app%3Done"))]
