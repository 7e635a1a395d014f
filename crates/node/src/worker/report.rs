//! What the cluster hears of a pod: its status and events.

use super::*;

impl<W: PodApi> Worker<W> {
    pub(super) async fn tell_foreign(&self, why: &str) {
        let pod = Arc::clone(&self.desired.borrow().pod);
        self.shared.world.event(&pod, EventType::Warning, "FailedAdoption", why).await;
    }

    /// Says what a pod that relies on names or paths of its own gets instead.
    pub(super) async fn warn_of_plain_mode(&self, pod: &Pod) {
        let Some(spec) = pod.spec.as_ref().filter(|_| !self.shared.settings.isolation.is_hosts()) else { return };
        let mounts = spec.containers.iter().flat_map(|c| c.volume_mounts.iter().flatten());
        let paths: Vec<String> = mounts.map(|mount| mount.mount_path.clone()).collect();
        let mut changes = Vec::new();
        if !self.peer.subdomain.is_empty() {
            changes.push(format!("host names of {:?} were replaced by 127.0.0.1", self.peer.subdomain));
        }
        if !paths.is_empty() {
            changes.push(format!("paths beneath {} were replaced by where the volumes are", paths.join(", ")));
        }
        if !changes.is_empty() {
            let message = format!(
                "This machine gives pods no names and paths of their own; in commands and environments, {}",
                changes.join(", and ")
            );
            self.shared.world.event(pod, EventType::Warning, "PlainMode", &message).await;
        }
    }

    /// The pod as it was last. Its object may have gone before the status told how it ended: then the journal does.
    pub(super) fn last_state(&self, desired: &Desired) -> serde_json::Result<Value> {
        let mut pod = serde_json::to_value(&*desired.pod)?;
        if let Some(meta) = pod["metadata"].as_object_mut() {
            meta.remove("managedFields");
        }
        if desired.is_over() || self.journal.records.is_empty() {
            return Ok(pod);
        }
        let Value::Object(known) = self.status(desired) else { return Ok(pod) };
        let status = &mut pod["status"];
        let others = status["conditions"].take();
        known.into_iter().for_each(|(member, value)| status[member.as_str()] = value);
        if let Some(conditions) = status["conditions"].as_array_mut() {
            let others = others.as_array().into_iter().flatten();
            let others: Vec<&Value> =
                others.filter(|c| !conditions.iter().any(|ours| ours["type"] == c["type"])).collect();
            let others: Vec<Value> = others.into_iter().cloned().collect();
            conditions.extend(others);
        }
        Ok(pod)
    }

    /// The status as the journal has it.
    pub(super) fn status(&self, desired: &Desired) -> Value {
        status::status(&Observed {
            pod: &desired.pod,
            records: &self.journal.records,
            ready: &self.ready,
            address: self.peer.address,
            host_ip: self.shared.config.host_ip,
            start_time: self.start_time,
            problem: self.problem.as_ref(),
            previous: &self.reported,
            entered: crate::programs::has_hosts(&desired.pod).then(|| self.dir.entered().exists()),
            now: clock::now(),
        })
    }

    /// Writes the status if it differs from the last one.
    pub(super) async fn report(&mut self, desired: &Desired) -> Result<(), RoundError> {
        if desired.gone || (desired.is_over() && self.journal.records.is_empty()) {
            return Ok(());
        }
        let mut status = self.status(desired);
        if let Some(known) = desired.pod.status.as_ref().filter(|_| desired.is_over()) {
            // A pod that is over stays over, for the reason it was given first.
            status["phase"] = json!(known.phase);
            status["reason"] = json!(known.reason);
            status["message"] = json!(known.message);
        }
        if status == self.reported {
            return Ok(());
        }
        match self.shared.world.patch_status(&desired.pod, status.clone()).await {
            Ok(()) => self.reported = status,
            Err(WorldError::NotFound) => {} // the watch will say so
            Err(e @ WorldError::Failed { .. }) => return Err(e.into()),
        }
        Ok(())
    }

    /// Events for journal records that none was sent for.
    pub(super) async fn send_events(&mut self, desired: &Desired) {
        let records = self.journal.records.get(self.events_sent..).unwrap_or_default().to_vec();
        self.events_sent = self.journal.records.len();
        for record in records {
            let (kind, reason, message) = match record.event {
                Event::Running { container, .. } => {
                    (EventType::Normal, "Started", format!("Container started: {container}"))
                }
                Event::Exited { exit, .. } if matches!(exit.reason.as_str(), "StartError" | "RunContainerError") => {
                    (EventType::Warning, "Failed", format!("Error: {}", exit.message))
                }
                Event::Exited { container, exit, .. } if exit.code != 0 => {
                    let mut text = format!("Container {container} exited with code {} ({})", exit.code, exit.reason);
                    if exit.reason == "OOMKilled" && !exit.message.is_empty() {
                        text += &format!(": {}", exit.message);
                    }
                    (EventType::Warning, "Failed", text)
                }
                Event::Waiting { container, back_off_secs, .. } => {
                    let text = format!("Back-off {back_off_secs}s restarting failed container {container}");
                    (EventType::Warning, "BackOff", text)
                }
                Event::HookFailed { hook: HookKind::PostStart, .. } => {
                    (EventType::Warning, "FailedPostStartHook", "PostStartHook failed".to_owned())
                }
                Event::HookFailed { hook: HookKind::PreStop, .. } => {
                    (EventType::Warning, "FailedPreStopHook", "PreStopHook failed".to_owned())
                }
                Event::Stopping { .. } => (EventType::Normal, "Killing", "Stopping the pod's containers".to_owned()),
                Event::Lost { message } => (EventType::Warning, "SupervisorLost", message),
                Event::Exited { .. } | Event::Taken { .. } | Event::Started { .. } | Event::Finished => continue,
            };
            self.shared.world.event(&desired.pod, kind, reason, &message).await;
        }
    }
}

/// Which probed containers were said to be ready, of those that still run the attempt that it was said of.
pub(super) fn ready_before(pod: &Pod, view: &PodView) -> BTreeMap<String, bool> {
    let statuses =
        pod.status.iter().flat_map(|s| s.container_statuses.iter().chain(&s.init_container_statuses).flatten());
    let runs = |name: &str, restarts: i32| {
        view.containers.get(name).is_some_and(|c| {
            matches!(c.state, ContainerState::Running { .. }) && i32::try_from(c.attempt) == Ok(restarts)
        })
    };
    let known = statuses.filter(|status| status.ready && runs(&status.name, status.restart_count));
    known.map(|status| (status.name.clone(), true)).collect()
}
