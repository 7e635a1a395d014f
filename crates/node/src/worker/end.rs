//! A pod is stopped, written off, and cleared away.

use super::*;

impl<W: PodApi> Worker<W> {
    /// Removes the pod's cgroup, in which nothing of use runs any more.
    pub(super) async fn remove_group(&self) {
        let Ok(Some(launch)) = self.dir.read_launch() else { return };
        let Some(group) = launch.cgroup else { return };
        let removed = tokio::task::spawn_blocking(move || cgroup::remove(&group)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(%error, "cannot remove the pod's cgroup; the next start tries again");
        }
    }

    /// The shim died without an end in the journal: so is the pod to. What is left of it is ended first, so that nobody gets
    /// its GPUs and ports beside it.
    pub(super) async fn write_off(&mut self) -> Result<(), RoundError> {
        if let Some(held) = self.dir.read_held()? {
            end_orphans(held, self.journal.records.clone()).await?;
        }
        let boot = boot_of(&self.journal.records);
        let message = if boot.is_some_and(|boot| boot != crate::host::boot_id()) {
            "The machine was restarted while the pod ran"
        } else {
            "The process that supervised the pod was killed, and the pod with it"
        };
        tracing::warn!(message, "pod lost");
        let mut journal = JournalWriter::open(&self.dir)?;
        Ok(journal.append(&Record::now(Event::Lost { message: message.to_owned() }))?)
    }

    pub(super) async fn send_stop(&mut self, desired: &Desired) {
        let grace_secs = desired.grace_secs();
        if self.stop_sent.is_some_and(|sent| sent <= grace_secs) {
            return;
        }
        if let Some(link) = &mut self.link {
            match link.send(&Request::Stop { grace_secs }).await {
                Ok(()) => self.stop_sent = Some(grace_secs),
                Err(_) => self.link = None, // gone: the journal tells
            }
        }
    }

    /// Clears the pod's directory away, but for what is to be kept of it.
    pub(super) fn retire(&mut self, desired: &Desired) -> Result<(), RoundError> {
        self.read_journal();
        let last = self.last_state(desired)?;
        let keep = self.shared.config.keep.as_deref();
        Ok(evidence::retire(&self.dir, &desired.pod, &last, keep)?)
    }
}

pub(super) async fn end_orphans(held: Held, records: Vec<Record>) -> Result<(), RoundError> {
    Ok(tokio::task::spawn_blocking(move || orphans::end(&held, &records)).await??)
}
