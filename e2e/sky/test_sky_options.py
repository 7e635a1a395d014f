"""Every option of every command of `sky` that works, tried as a user: it has its effect, or is refused by its name."""

from __future__ import annotations

import datetime
import json
import pathlib
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

import pytest
from conftest import ROOT, stop
from test_sky_kubernetes import Home

DRY = f"--dryrun --catalog {ROOT}/crates/sky/golden/catalog/v8 -c x"
CATALOG = f"--catalog {ROOT}/crates/sky/golden/catalog/v8"
LACKS = "`trainyard {}` is not there: "

# by command: option, exit code, what is typed behind the command, what is said; `!` is before what is not
TRIED: dict[str, list[tuple[str, int, str, list[str]]]] = {
    "sky launch": [
        ("config", 1, "--config aws.vpc_name=x true", ["`aws` has no effect here"]),
        ("entrypoint", 0, f"{DRY} --infra local echo hello", ["Command to run: echo hello"]),
        ("cluster", 0, f"{DRY} --cluster named --infra local true", ["Running on cluster: named"]),
        ("dryrun", 0, f"{DRY} --infra local true", ["Dryrun finished."]),
        ("detach_run", 0, "-y -d -c opt sleep 0.1", ["Job submitted, ID: ", "!Job finished"]),
        ("backend_name", 1, "--docker true", [LACKS.format("sky launch --docker")]),
        ("name", 0, "-y -c opt --name other echo $SKYPILOT_TASK_ID", ["(other, pid="]),
        ("workdir", 0, "-y -c opt --workdir code cat a.txt", [") first"]),
        ("infra", 0, f"{DRY} --infra gcp true", ["GCP (", "!AWS ("]),
        ("cloud", 0, f"{DRY} --cloud gcp true", ["GCP (", "!AWS ("]),
        ("region", 0, f"{DRY} --cloud aws --region us-west-2 true", ["AWS (us-west-2)"]),
        ("zone", 0, f"{DRY} --cloud aws --region us-west-2 --zone us-west-2b true", ["AWS (us-west-2b)"]),
        ("num_nodes", 0, f"{DRY} --infra local --num-nodes 3 true", ["(3 nodes)"]),
        ("num_nodes", 1, "-y -c opt --num-nodes 3 true", ["ResourcesMismatchError", "3x <Cloud>()"]),
        ("cpus", 0, f"{DRY} --infra aws --cpus 4 true", ["m6i.xlarge"]),
        ("memory", 0, f"{DRY} --infra aws --cpus 4+ --memory 32 true", ["m6i.2xlarge"]),
        ("disk_size", 0, "-y -c opt --disk-size 100 true", ["`disk_size`: ", "It has no effect on this machine."]),
        ("disk_tier", 1, f"{DRY} --infra local --disk-tier low true", ["Disk tier low is not supported"]),
        ("network_tier", 1, f"{DRY} --infra local --network-tier best true", ["Custom network tier is currently not supported"]),
        ("use_spot", 0, f"{DRY} --infra aws --use-spot true", ["[Spot]"]),
        ("image_id", 1, f"{DRY} --infra local --image-id docker:x true", ["Docker image is not supported on Local"]),
        ("image_id", 1, "-y -c opt --image-id docker:x true", ["`image_id`: tasks run on the machine as it is"]),
        ("env_file", 0, "-y -c opt --env-file vars.env echo $FROM_FILE", [") of a file"]),
        ("env", 0, "-y -c opt --env GIVEN=1 echo =$GIVEN=", [") =1="]),
        ("secret_file", 0, "-y -c opt --secret-file vars.env echo $FROM_FILE", [") of a file"]),
        ("secret", 0, "-y -c opt --secret HIDDEN=yes echo $HIDDEN", [") yes"]),
        ("local_disk", 1, f"{DRY} --infra local --local-disk nvme:100+ true", ["Local disk is not supported"]),
        ("gpus", 0, f"{DRY} --infra aws --gpus T4 true", ["T4:1"]),
        ("instance_type", 0, f"{DRY} --infra aws -t m6i.2xlarge true", ["m6i.2xlarge"]),
        # nothing keeps anybody from ports of this machine
        ("ports", 0, "-y -c opt --ports 8080 true", ["Job finished"]),
        ("priority", 1, "--priority 3 true", [LACKS.format("sky launch --priority")]),
        ("async_call", 0, "-y --async -c opt true", ["Job submitted, ID: ", "!Job finished"]),
        ("idle_minutes_to_autostop", 0, "-y -d -c opt -i 77 true; status", ["77m"]),
        ("wait_for", 1, "-y -c never --infra local --wait-for jobs true", ["--wait-for jobs needs --idle-minutes-to-autostop"]),
        ("wait_for", 0, "-y -d -c opt -i 78 --wait-for jobs true; kubectl cluster opt", ['"waitFor": "Jobs"', '"idleMinutes": 78']),
        ("down", 0, "-y -d -c opt -i 79 --down true; status", ["79m (down)"]),
        ("retry_until_up", 0, "-y -d -c again --infra local --retry-until-up true; kubectl cluster again", ['"retryUntilUp": true']),
        ("yes", 1, "-c never --infra local true", ["Proceed? [Y/n]", "Aborted!"]),
        ("no_setup", 0, "-y --no-setup -c opt setup.yaml", [") ran", "!setting up"]),
        ("clone_disk_from", 1, "--clone-disk-from x true", [LACKS.format("sky launch --clone-disk-from")]),
        ("fast", 0, "-y --fast -c opt setup.yaml; launch -y --fast -c opt setup.yaml", [") ran", "!setting up"]),
        ("resize", 1, "--resize -c opt true", [LACKS.format("sky launch --resize")]),
        ("git_url", 0, "-y -c opt --git-url $PWD/repository cat a.txt", [") one"]),
        ("git_ref", 0, "-y -c opt --git-url $PWD/repository --git-ref other cat a.txt", [") two"]),
        ("workspace", 1, "-w team true", [LACKS.format("sky launch --workspace")]),
        ("catalog", 2, "--dryrun --catalog nowhere true", ["the price lists in nowhere cannot be read"]),
    ],
    "sky exec": [
        ("config", 1, "--config aws.vpc_name=x opt true", ["`aws` has no effect here"]),
        ("cluster", 1, "nope true", ["Cluster 'nope' does not exist."]),
        ("cluster_option", 0, "-c opt echo hello", [") hello"]),
        ("entrypoint", 2, "opt", ["Missing argument '[ENTRYPOINT]...'"]),
        ("detach_run", 0, "-d opt true", ["Job submitted, ID: ", "!Job finished"]),
        ("name", 0, "opt --name third true", ["Job finished"]),
        ("workdir", 0, "opt --workdir code cat a.txt", [") first"]),
        ("infra", 1, "opt --infra k8s true", ["ResourcesMismatchError"]),
        ("cloud", 1, "opt --cloud kubernetes true", ["ResourcesMismatchError"]),
        ("region", 1, "opt --cloud kubernetes --region x true", ["in region 'x'"]),
        ("zone", 1, "opt --cloud aws --region us-west-2 --zone us-west-2b true", ["ResourcesMismatchError"]),
        ("num_nodes", 1, "opt --num-nodes 2 true", ["ResourcesMismatchError"]),
        # machines are as large as they are
        ("cpus", 0, "opt --cpus 4096 true", ["Override param cpus=4096 is ignored.", "Job finished"]),
        ("memory", 0, "opt --memory 100000 true", ["Override param memory=100000 is ignored.", "Job finished"]),
        ("disk_size", 0, "opt --disk-size 100 true", ["Override param disk_size=100 is ignored."]),
        ("disk_tier", 0, "opt --disk-tier low true", ["Override param disk_tier=low is ignored."]),
        ("network_tier", 1, "opt --network-tier best true", ["`network_tier`: "]),
        ("use_spot", 1, "opt --use-spot true", ["ResourcesMismatchError", "[Spot]"]),
        ("image_id", 1, "opt --image-id docker:x true", ["`image_id`: "]),
        ("env_file", 0, "opt --env-file vars.env echo $FROM_FILE", [") of a file"]),
        ("env", 0, "opt --env GIVEN=1 echo =$GIVEN=", [") =1="]),
        ("secret_file", 0, "opt --secret-file vars.env echo $FROM_FILE", [") of a file"]),
        ("secret", 0, "opt --secret HIDDEN=yes echo $HIDDEN", [") yes"]),
        ("local_disk", 0, "opt --local-disk nvme:100+ true", ["Override param local_disk=nvme:100+ is ignored."]),
        ("gpus", 1, "opt --gpus T4 true", ["ResourcesMismatchError"]),
        ("instance_type", 1, "opt -t m6i.large true", ["ResourcesMismatchError"]),
        ("ports", 0, "opt --ports 8080 true", ["Override param ports=('8080',) is ignored.", "Job finished"]),
        ("async_call", 0, "--async opt true", ["Job submitted, ID: ", "!Job finished"]),
        ("git_url", 0, "opt --git-url $PWD/repository cat a.txt", [") one"]),
        ("git_ref", 0, "opt --git-url $PWD/repository --git-ref other cat a.txt", [") two"]),
    ],
    "sky status": [
        ("config", 1, "--config x=1", ["`x` has no effect here"]),
        ("verbose", 0, "-v", ["HEAD_IP"]),
        ("refresh", 0, "--refresh", ["opt"]),
        ("ip", 0, "--ip opt", ["127."]),
        ("endpoints", 1, "--endpoints opt", [LACKS.format("sky status --endpoints")]),
        ("endpoint", 1, "--endpoint 80 opt", [LACKS.format("sky status --endpoint")]),
        ("show_managed_jobs", 0, "--no-show-managed-jobs", ["Services", "!Managed jobs"]),
        ("show_services", 0, "--no-show-services", ["Managed jobs", "!Services"]),
        # there are none, and SkyPilot has no heading for that
        ("show_pools", 0, "--no-show-pools", ["opt", "!Pools"]),
        ("clusters", 0, "nope", ["Cluster 'nope' not found.", "!opt"]),
        ("all_users", 0, "--all-users", ["USER", "theirs"]),
        ("all_users", 0, "", ["opt", "!theirs"]),
        ("output_format", 0, "-o json", ['"name": "opt"']),
    ],
    "sky cost-report": [
        ("config", 1, "--config x=1", ["`x` has no effect here"]),
        # all are shown without it
        ("all", 0, "--all", ["opt"]),
        ("days", 0, "--days 30", ["opt", "!long-gone"]),
        ("days", 0, "--days 50", ["opt", "long-gone"]),
        ("days", 0, "--days 0", ["opt", "long-gone"]),
        ("days", 2, "--days=-1", ["--days must not be negative"]),
        ("output_format", 0, "--output json", ['"name": "opt"']),
    ],
    "sky queue": [
        ("config", 1, "--config x=1", ["`x` has no effect here"]),
        ("all_users", 0, "--all-users opt", ["visitor", "Job queue of all users"]),
        ("all_users", 0, "opt", ["other", "!visitor", "Job queue of current user"]),
        ("skip_finished", 0, "--skip-finished opt", ["!SUCCEEDED"]),
        ("clusters", 0, "nope", ["Cluster 'nope' does not exist.", "!cluster opt"]),
        ("output_format", 0, "-o json opt", ['"job_id": 1']),
    ],
    "sky logs": [
        ("config", 1, "--config x=1 opt", ["`x` has no effect here"]),
        ("provision", 1, "--provision opt", [LACKS.format("sky logs --provision")]),
        ("hook_event", 1, "--hook stop opt", ["No stop hook log found."]),
        ("autostop_alias", 1, "--autostop opt", ["No stop hook log found."]),
        ("worker", 1, "--worker 2 opt 1", ["--worker 2: job 1 ran on the head alone"]),
        ("sync_down", 0, "--sync-down opt 1", ["Job 1 logs: "]),
        ("status", 0, "--status opt 1", ["Job 1: SUCCEEDED"]),
        ("follow", 0, "--no-follow opt 1", [") line 3"]),
        ("tail", 0, "--tail 1 opt 1", [") line 3", "!line 2"]),
        ("cluster", 1, "nope", ["Cluster 'nope' does not exist."]),
        ("job_ids", 102, "opt 999", ["Job 999 not found"]),
    ],
    "sky cancel": [
        ("config", 1, "--config x=1 opt", ["`x` has no effect here"]),
        ("cluster", 2, "-y nope", ["Cluster 'nope' does not exist."]),
        ("yes", 1, "opt --all", ["Aborted!"]),
        ("all", 0, "-y opt --all; queue opt -u -s", ["endless", "!mine"]),
        ("all_users", 0, "-y opt --all-users; queue opt -u -s", ["!endless"]),
        ("async_call", 0, "-y --async opt --all", ["No jobs cancelled."]),
        ("jobs", 0, "-y opt 999", ["Job 999 not found", "No jobs cancelled."]),
    ],
    "sky autostop": [
        ("config", 1, "--config x=1 opt", ["`x` has no effect here"]),
        ("clusters", 0, "-y nope", ["Cluster(s) not found: nope."]),
        ("all", 0, "-y --all -i 60; status -u", ["60m", "!61m"]),
        ("all_users", 0, "-y --all-users -i 61; status -u theirs", ["61m"]),
        ("idle_minutes", 0, "-y opt -i 62; status", ["62m"]),
        ("wait_for", 0, "-y opt -i 62 --wait-for none; kubectl cluster opt", ['"waitFor": "None"']),
        ("cancel", 0, "-y opt --cancel; status opt", ["!62m"]),
        ("down", 0, "-y opt -i 63 --down; status opt", ["63m (down)"]),
        ("yes", 1, "opt -i 64", ["Aborted!"]),
        ("async_call", 0, "-y --async opt -i 65; status opt", ["65m"]),
    ],
    "sky stop": [
        ("config", 1, "--config x=1 opt", ["`x` has no effect here"]),
        ("clusters", 0, "-y nope", ["Cluster(s) not found: nope."]),
        ("yes", 1, "opt", ["Aborted!"]),
        ("graceful_timeout", 2, "-y opt --graceful-timeout 3", ["--graceful-timeout needs --graceful"]),
        ("graceful", 0, "-y again --graceful --graceful-timeout 3", ["as they do without --graceful", "Stopping cluster again...done."]),
        ("async_call", 0, "-y opt --async", ["Stopping cluster opt...done."]),
        ("all", 0, "-y --all; status -u", ["STOPPED", "theirs"]),
        ("all_users", 0, "-y --all-users; status -u", ["!UP"]),
    ],
    "sky start": [
        ("config", 1, "--config x=1 opt", ["`x` has no effect here"]),
        ("clusters", 0, "-y nope", ["Cluster(s) not found: nope."]),
        ("yes", 1, "opt", ["Aborted!"]),
        ("down", 2, "-y opt --down", ["--down needs --idle-minutes-to-autostop"]),
        ("wait_for", 1, "-y opt --wait-for jobs", ["--wait-for jobs needs"]),
        ("idle_minutes_to_autostop", 0, "-y opt -i 66 --down --wait-for jobs; status opt", ["66m (down)", "UP"]),
        ("force", 0, "-y opt", ["already has status UP"]),
        ("force", 0, "-y opt --force", ["Cluster opt started."]),
        ("retry_until_up", 0, "-y again --retry-until-up; kubectl cluster again", ['"retryUntilUp": true']),
        ("all", 0, "-y --all; status -u", ["STOPPED"]),
        ("async_call", 0, "-y --async theirs", ["Cluster theirs started."]),
    ],
    "sky down": [
        ("config", 1, "--config x=1 opt", ["`x` has no effect here"]),
        ("clusters", 0, "-y nope", ["Cluster(s) not found: nope."]),
        ("yes", 1, "opt", ["Aborted!"]),
        ("graceful_timeout", 2, "-y opt --graceful-timeout 3", ["--graceful-timeout needs --graceful"]),
        ("graceful", 0, "-y again --graceful", ["as they do without --graceful", "Terminating cluster again...done."]),
        ("async_call", 0, "-y nope --async", ["Cluster(s) not found: nope."]),
        ("purge", 0, "-y nope --purge", ["Cluster(s) not found: nope."]),
        ("all", 0, "-y --all; status -u", ["theirs", "!opt"]),
        ("all_users", 0, "-y --all-users --purge; status -u", ["No existing clusters."]),
    ],
    # no managed job exists here
    "sky jobs queue": [
        ("config", 1, "--config x=1", ["`x` has no effect here"]),
        ("verbose", 0, "--verbose", ["No in-progress managed jobs."]),
        ("limit", 0, "--limit 3", ["No in-progress managed jobs."]),
        ("limit", 2, "--limit=-1", ["Invalid value for --limit: -1 is below 0."]),
        ("refresh", 0, "--refresh", ["No in-progress managed jobs."]),
        ("skip_finished", 0, "--skip-finished", ["Managed jobs (showing in-progress jobs only)"]),
        ("statuses", 0, "-s running,FAILED", ["No in-progress managed jobs.", "!jobs only"]),
        ("statuses", 0, "-s", ["Use --skip-finished", "Managed jobs (showing in-progress jobs only)"]),
        ("since", 2, "--since 1h30m", ["Invalid value for --since: Invalid time format: 1h30m"]),
        ("after", 2, "--since 1h --after 2026-01-13", ["--since and --after are mutually exclusive"]),
        ("before", 2, "--before yesterday", ["Invalid value for --before: Invalid date/time 'yesterday'"]),
        ("infra", 1, "--infra a//b", ["Invalid infra format"]),
        ("all_users", 0, "--all-users", ["No in-progress managed jobs."]),
        ("all", 0, "--all", ["No in-progress managed jobs."]),
        ("output_format", 0, "-o json", ["[]", "!Managed jobs"]),
    ],
    "sky jobs cancel": [
        ("config", 1, "--config x=1 5", ["`x` has no effect here"]),
        ("name", 102, "-y --name nope", ["No running job found with name 'nope'."]),
        ("pool", 102, "-y --pool warm", ["No running job found in pool 'warm'."]),
        ("job_ids", 102, "-y 999", ["Job 999 not found"]),
        ("job_ids", 2, "-y --all 5", ["Provided '--job-ids 5 --all'"]),
        ("task", 1, "5 --task 1", [LACKS.format("sky jobs cancel --task")]),
        ("graceful_timeout", 2, "-y 5 --graceful-timeout 3", ["--graceful-timeout needs --graceful"]),
        ("graceful", 102, "-y 999 --graceful --graceful-timeout 3", ["as they do without --graceful", "Job 999 not found"]),
        ("all", 0, "-y --all", ["No job to cancel."]),
        ("yes", 1, "--all", ["Cancelling all managed jobs. Proceed?", "Aborted!"]),
        ("all_users", 0, "-y --all-users", ["No job to cancel."]),
    ],
    "sky jobs logs": [
        ("config", 1, "--config x=1 5", ["`x` has no effect here"]),
        ("name", 102, "--name nope", ["No managed job has the name 'nope'."]),
        ("name", 1, "--name nope 5", ["Cannot specify both --name and a job ID."]),
        ("follow", 102, "--no-follow", ["You have no managed jobs."]),
        ("controller", 1, "--controller --sync-down 5", ["Cannot specify both --controller and --sync-down."]),
        ("controller", 102, "--controller 5", ["Managed job 5 not found."]),
        ("refresh", 102, "--refresh 5", ["Managed job 5 not found."]),
        ("sync_down", 102, "--sync-down", ["You have no managed jobs."]),
        ("tail", 102, "--tail 3 5", ["Managed job 5 not found."]),
        ("tail", 2, "--tail x 5", ["Invalid value for '--tail'"]),
        ("job_id", 102, "5", ["Managed job 5 not found."]),
        ("task", 102, "5 1", ["Managed job 5 not found."]),
    ],
    # without -y: what is planned is shown, and no job is made
    "sky jobs launch": [
        ("config", 1, "--config aws.vpc_name=x true", ["`aws` has no effect here"]),
        ("entrypoint", 1, "--infra local echo hello", ["Command to run: echo hello", "Aborted!"]),
        ("name", 1, "--infra local --name other true", ["Managed job 'other' will be launched"]),
        ("workdir", 0, "-y --infra local --workdir code cat a.txt; jobs logs", [") first"]),
        ("infra", 1, "--infra gcp true", ["No resource satisfying GCP()"]),
        ("cloud", 1, "--cloud gcp true", ["No resource satisfying GCP()"]),
        ("region", 1, "--cloud aws --region us-west-2 true", ["AWS(region=us-west-2)"]),
        ("zone", 1, "--cloud aws --region us-west-2 --zone us-west-2b true", ["zone=us-west-2b"]),
        ("num_nodes", 1, "--infra local --num-nodes 3 true", ["(3 nodes)", "Aborted!"]),
        ("cpus", 1, "--infra local --cpus 4096 true", ["ResourcesUnavailableError"]),
        ("memory", 1, "--infra local --memory 100000 true", ["ResourcesUnavailableError"]),
        ("disk_size", 1, "--infra local --disk-size 100 true", ["`disk_size`: ", "It has no effect on this machine."]),
        ("disk_tier", 1, "--infra local --disk-tier low true", ["Disk tier low is not supported"]),
        ("network_tier", 1, "--infra local --network-tier best true", ["Custom network tier is currently not supported"]),
        ("use_spot", 1, "--infra local --use-spot true", ["Spot instances are not supported in Local"]),
        ("image_id", 1, "--infra local --image-id docker:x true", ["Docker image is not supported on Local"]),
        ("env_file", 0, "-y --infra local --env-file vars.env echo $FROM_FILE; jobs logs", [") of a file"]),
        ("env", 0, "-y --infra local --env GIVEN=1 echo =$GIVEN=; jobs logs", [") =1="]),
        ("secret_file", 0, "-y --infra local --secret-file vars.env echo $FROM_FILE; jobs logs", [") of a file"]),
        ("secret", 0, "-y --infra local --secret HIDDEN=yes echo $HIDDEN; jobs logs", [") yes"]),
        ("local_disk", 1, "--infra local --local-disk nvme:100+ true", ["Local disk is not supported"]),
        ("gpus", 1, "--infra local --gpus T4 true", ["ResourcesUnavailableError"]),
        ("instance_type", 1, "--infra local -t m6i.2xlarge true", ["No resource satisfying Local(m6i.2xlarge)"]),
        # nothing keeps anybody from ports of this machine
        ("ports", 1, "--infra local --ports 8080 true", ["Aborted!"]),
        ("priority", 1, "--infra local --priority 2000 true", ["Priority must be between -1000 and 1000. Found: 2000"]),
        ("priority", 0, "-y --infra local --priority 7 true; kubectl managedjobs", ['"priority": 7']),
        # it returns at once in any case
        ("async_call", 0, "-y --async --infra local true", ["Managed Job ID: "]),
        ("cluster", 1, "-c x true", [LACKS.format("sky jobs launch --cluster")]),
        ("job_recovery", 1, "--job-recovery SOMEDAY true", ["'SOMEDAY' is not a valid jobs recovery strategy"]),
        ("job_recovery", 0, "-y --infra local --job-recovery none true", ["Managed Job ID: "]),
        ("detach_run", 0, "-y -d --infra local true", ["Managed Job ID: "]),
        ("pool", 1, "-p x true", ["Pool 'x' does not exist."]),
        ("num_jobs", 0, "-y --infra local --num-jobs 2 true", ["Managed Job IDs: "]),
        ("job_group", 1, "--job-group x true", [LACKS.format("sky jobs launch --job-group")]),
        # no job joins another one in any case
        ("no_job_group", 1, "--infra local --no-job-group true", ["Aborted!"]),
        ("git_url", 0, "-y --infra local --git-url $PWD/repository cat a.txt; jobs logs", [") one"]),
        ("git_ref", 0, "-y --infra local --git-url $PWD/repository --git-ref other cat a.txt; jobs logs", [") two"]),
        ("workspace", 1, "-w team true", [LACKS.format("sky jobs launch --workspace")]),
        ("yes", 1, "--infra local true", ["Proceed? [Y/n]", "Aborted!"]),
    ],
    "sky jobs explain": [
        ("config", 1, "--config x=1 1", ["`x` has no effect here"]),
        ("job_id", 0, "1", ["Managed job 1 ", "attempt 1 on local"]),
        ("job_id", 102, "999", ["Managed job 999 not found"]),
        ("output_format", 0, "-o json 1", ['"attempt": 1']),
    ],
    "sky check": [
        ("config", 1, "--config x=1", ["`x` has no effect here"]),
        ("infra_list", 0, "local", ["local", "!ssh"]),
        ("verbose", 1, "--verbose", [LACKS.format("sky check --verbose")]),
        ("workspace", 1, "--workspace team", [LACKS.format("sky check --workspace")]),
        ("output_format", 0, "-o json local", ['"infra": "local"', '"usable": true']),
        ("catalog", 0, CATALOG, ["aws", "offers are shown"]),
    ],
    "sky show-gpus": [
        ("config", 1, "--config x=1", ["`x` has no effect here"]),
        ("accelerator_str", 0, f"{CATALOG} T4", ["T4", "!H100"]),
        ("all", 0, f"{CATALOG} --all", ["T4"]),
        ("infra", 0, f"{CATALOG} --infra gcp T4", ["GCP", "!AWS"]),
        ("cloud", 0, f"{CATALOG} --cloud gcp T4", ["GCP", "!AWS"]),
        ("region", 0, f"{CATALOG} --cloud aws --region us-east-1 T4", ["AWS"]),
        ("all_regions", 2, f"{CATALOG} --all-regions", ["only valid when an accelerator is specified"]),
        ("verbose", 1, "--verbose", [LACKS.format("sky show-gpus --verbose")]),
        ("catalog", 2, "--catalog nowhere", ["the price lists in nowhere cannot be read"]),
    ],
    "sky gpus list": [
        ("config", 1, "--config x=1", ["`x` has no effect here"]),
        ("accelerator_str", 0, f"{CATALOG} T4", ["T4", "!H100"]),
        ("all", 0, f"{CATALOG} --all", ["T4"]),
        ("infra", 0, f"{CATALOG} --infra gcp T4", ["GCP", "!AWS"]),
        ("cloud", 0, f"{CATALOG} --cloud gcp T4", ["GCP", "!AWS"]),
        ("region", 2, f"{CATALOG} --region us-east-1 T4", ["The --region flag is only valid when the --cloud flag is set."]),
        ("all_regions", 0, f"{CATALOG} --all-regions --cloud aws T4", ["us-west-2"]),
        ("verbose", 1, "--verbose", [LACKS.format("sky gpus list --verbose")]),
        ("output_format", 0, f"{CATALOG} -o json T4", ['"T4"']),
        ("catalog", 2, "--catalog nowhere", ["the price lists in nowhere cannot be read"]),
    ],
    "sky explain": [
        ("entrypoint", 1, "nope.yaml", ["looks like a yaml path but does not exist"]),
        ("infra", 0, f"{CATALOG} --infra gcp true", ["GCP", "!AWS"]),
        ("gpus", 0, f"{CATALOG} --gpus T4 --infra aws true", ["T4"]),
        ("num_nodes", 0, f"{CATALOG} --num-nodes 3 --infra aws true", ["3"]),
        ("use_spot", 0, f"{CATALOG} --use-spot --infra aws true", ["[Spot]"]),
        ("catalog", 2, "--catalog nowhere true", ["the price lists in nowhere cannot be read"]),
    ],
    "sky catalog import": [("folder", 0, "/some/where", ["-o /some/where/aws/vms.csv"])],
}


def grammar() -> dict[str, list[tuple[str, str, bool]]]:
    """Of every command: its parameters' names, how each is written, and whether it must be there."""
    commands: dict[str, list[tuple[str, str, bool]]] = {}
    params: list[tuple[str, str, bool]] = []
    for line in (ROOT / "crates/sky/data/commands.txt").read_text().splitlines():
        if line.startswith("  "):
            words = line.split()
            params.append((words[0], words[1], "required" in words))
        else:
            name, _, kind = line.partition(" (")
            params = []
            if "group" not in kind:
                commands[name] = params
    return commands


@pytest.fixture(scope="module")
def sky() -> Iterator[Home]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="o"))
    home = Home(folder / "s", folder / "me")
    try:
        yield home
    finally:
        home.sky("down", "-y", "--all-users")
        stop(home)
        shutil.rmtree(folder, ignore_errors=True)


def typed(sky: Home, command: str, words: str) -> tuple[int, str]:
    """The exit code of the last of these commands, and what it printed; each but the first one begins with its own name."""
    code, out = 0, ""
    for at, one in enumerate(words.split("; ")):
        first = command.removeprefix("sky ") if at == 0 else ""
        if one.startswith("kubectl "):
            code, out = 0, sky.kubectl("get", *one.split()[1:], "-o", "json").stdout
            continue
        said = [word.replace("$PWD", str(sky.user)) for word in shlex.split(f"{first} {one}")]
        done = sky.run("sky", *said, check=False, timeout=120, cwd=sky.user, stdin=subprocess.DEVNULL)
        code, out = done.returncode, done.stdout + done.stderr
    return code, out


def test_each_option_has_its_effect_or_is_refused(sky: Home) -> None:
    (sky.user / "code").mkdir()
    (sky.user / "code/a.txt").write_text("first\n")
    (sky.user / "vars.env").write_text("FROM_FILE='of a file'\n")
    (sky.user / "setup.yaml").write_text("setup: echo setting up\nrun: echo ran\n")
    repository = sky.user / "repository"
    repository.mkdir()
    git = ["git", "-C", repository, "-c", "user.name=me", "-c", "user.email=me@example.com"]
    for branch, text in (("main", "one"), ("other", "two")):
        subprocess.run([*git, "init", "-q", "-b", "main"] if text == "one" else [*git, "checkout", "-q", "-b", branch], check=True)
        (repository / "a.txt").write_text(text)
        subprocess.run([*git, "add", "a.txt"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", text], check=True)
    subprocess.run([*git, "checkout", "-q", "main"], check=True)
    sky.env["USER"] = "me"
    sky.sky("launch", "-y", "-c", "opt", "--infra", "local", "--cpus", "1+", "for i in 1 2 3; do echo line $i; done")
    # somebody else's cluster and job
    sky.env["USER"] = "visitor"
    sky.sky("launch", "-y", "-d", "-c", "theirs", "--infra", "local", "--cpus", "1+", "true")
    sky.sky("exec", "-d", "opt", "--name", "endless", "true")
    sky.env["USER"] = "me"
    gone = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=40)).strftime("%Y-%m-%dT%H:%M:%SZ")
    past = {"name": "long-gone", "endedAt": gone, "launchedAt": gone, "usage": "[]", "resources": "x", "hourlyPrice": "0"}
    labels = {"sky.trainyard.dev/cluster-history": "true"}
    history = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "long-gone", "labels": labels}, "data": past}
    sky.kubectl("apply", "-f", "-", input=json.dumps(history))

    wrong = []
    for command, rows in TRIED.items():
        if command == "sky cancel":
            for user in ("me", "visitor"):
                sky.env["USER"] = user
                sky.sky("exec", "-d", "opt", "--name", "endless" if user == "visitor" else "mine", "sleep 1000")
            sky.env["USER"] = "me"
        for option, code, words, says in rows:
            got, out = typed(sky, command, words)
            held = all((text[1:] not in out) if text.startswith("!") else (text in out) for text in says)
            if got != code or not held:
                wrong.append(f"{command} {words}  [{option}]: exit code {got}, not {code}; {says} in:\n{out}")
    assert not wrong, "\n\n".join(wrong)


def test_the_table_names_every_option() -> None:
    """Those of commands that do nothing yet apart, which are refused as a whole."""
    known = grammar()
    for command, rows in TRIED.items():
        tried = {option for option, *_ in rows}
        assert tried == {name for name, *_ in known[command]}, command


def test_other_commands_say_that_they_do_nothing_yet(sky: Home) -> None:
    for command, params in grammar().items():
        # services are tried in test_sky_serve.py, pools in test_sky_pools.py
        if command in TRIED or command.startswith(("sky serve ", "sky jobs pool ")):
            continue
        needed = ["1" for _, written, required in params if required and written == "argument"]
        code, out = typed(sky, command, " ".join(needed))
        assert (code, len(out.splitlines())) == (1, 1) and f"`trainyard {command}` does nothing yet" in out, f"{command}: {code} {out}"
