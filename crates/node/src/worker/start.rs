//! A pod is made ready, its shim started or found again, and its volumes kept up to date.

use super::*;

impl<W: PodApi> Worker<W> {
    /// Fetches what the pod refers to and writes its directory; the launch description last.
    pub(super) async fn launch(&mut self, pod: &Arc<Pod>) -> Result<(), PrepareError> {
        let machine = |e: io::Error| PrepareError::Machine(format!("{}: {e}", self.dir.path().display()));
        let (sources, tokens) = self.fetch(pod).await?;
        let given = self.shared.registry().give(pod);
        let given = given.map_err(|lack| PrepareError::Machine(lack.to_string()))?;
        let choice =
            Choice { peer: self.peer.clone(), ports: given.ports, gpus: given.gpus, start_time: self.start_time };
        let launch = prepare::prepare(&self.shared.settings, &self.dir, pod, &choice, &sources, &tokens)?;
        self.shared.registry().write_hosts(&launch.uid).map_err(machine)?;
        self.probes.use_ports(launch.ports.clone());
        let as_json = |e: serde_json::Error| machine(e.into());
        self.dir.write_whole(&self.dir.pod(), &serde_json::to_vec(pod.as_ref()).map_err(as_json)?).map_err(machine)?;
        self.dir.write_whole(&self.dir.launch(), &serde_json::to_vec(&launch).map_err(as_json)?).map_err(machine)
    }

    /// The objects and tokens that the pod refers to.
    pub(super) async fn fetch(&self, pod: &Pod) -> Result<(Sources, Tokens), PrepareError> {
        let needs = volumes::needs(pod);
        let world = &self.shared.world;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let failed = |e: WorldError| PrepareError::Machine(e.to_string());
        let mut sources = Sources::default();
        for name in needs.config_maps {
            let found = absent_is_none(world.config_map(namespace, &name).await).map_err(failed)?;
            sources.config_maps.insert(name, found);
        }
        for name in needs.secrets {
            let found = absent_is_none(world.secret(namespace, &name).await).map_err(failed)?;
            sources.secrets.insert(name, found);
        }
        let mut tokens = Tokens::new();
        for (audience, expiration_secs) in needs.tokens {
            let account = pod.spec.as_ref().and_then(|s| s.service_account_name.as_deref()).filter(|s| !s.is_empty());
            let ask = TokenAsk {
                namespace: namespace.to_owned(),
                service_account: account.unwrap_or("default").to_owned(),
                audience: audience.clone(),
                expiration_secs,
                pod_name: pod.metadata.name.clone().unwrap_or_default(),
                pod_uid: pod.metadata.uid.clone().unwrap_or_default(),
            };
            let token = world.token(&ask).await.map_err(|e| {
                PrepareError::Machine(format!(
                    "failed to fetch token of service account {:?}: {e}",
                    ask.service_account
                ))
            })?;
            tokens.insert((audience, expiration_secs), token);
        }
        Ok((sources, tokens))
    }

    /// Finds the pod's shim, or starts it if there never was one. `false`: look at the journal again.
    pub(super) async fn connect(&mut self, desired: &Desired) -> Result<bool, RoundError> {
        if self.dir.shim()?.is_none() {
            if self.journal.read()? {
                return Ok(false);
            }
            if !self.journal.records.is_empty() {
                return self.write_off().await.map(|()| false);
            }
            if desired.is_ending() {
                // Written, but never started: there is nothing to stop.
                let mut journal = JournalWriter::open(&self.dir)?;
                journal.append(&Record::now(Event::Finished))?;
                return Ok(false);
            }
            let held = self.shared.registry().hold(&self.dir.uid());
            link::start(&self.shared.config.shim, &self.dir, held).await?;
        }
        let mut link = Link::connect(&self.dir).await?;
        link.send(&Request::Subscribe).await?;
        self.link = Some(link);
        self.stop_sent = None;
        Ok(true)
    }

    /// Shows a launched pod the hosts of its MPI job as they are now: nothing is asked of the cluster for it.
    pub(super) fn show_hosts(&self, hosts: &ConfigMap) {
        // a pod that is not launched yet fetches what there is then
        if matches!(self.stage, Stage::Launched) {
            volumes::show(&self.dir, &self.desired.borrow().pod, hosts);
        }
    }

    /// Keeps what volumes show of config maps, secrets, tokens and the pod itself up to date.
    pub(super) async fn refresh(&mut self, pod: &Arc<Pod>) {
        if Instant::now() < self.refresh_at {
            return;
        }
        self.refresh_at = after(Instant::now(), self.shared.config.refresh);
        let has_projections =
            pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()).any(|v| {
                v.config_map.is_some() || v.secret.is_some() || v.projected.is_some() || v.downward_api.is_some()
            });
        if !has_projections {
            return;
        }
        match self.fetch(pod).await {
            Ok((sources, tokens)) => {
                let place = Place { dir: &self.dir, data: &self.shared.config.data };
                let facts = self.shared.settings.facts(self.peer.address);
                volumes::refresh(&place, pod, &facts, &sources, &tokens);
                self.refresh_retry = RETRY_MIN;
            }
            Err(error) => {
                let wait = self.refresh_retry.min(self.shared.config.refresh);
                tracing::warn!(%error, ?wait, "cannot refresh the pod's volumes; trying again");
                self.refresh_at = after(Instant::now(), wait);
                self.refresh_retry = self.refresh_retry.saturating_mul(2).min(RETRY_MAX);
            }
        }
    }
}

pub(super) fn absent_is_none<T>(result: Result<T, WorldError>) -> Result<Option<T>, WorldError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(WorldError::NotFound) => Ok(None),
        Err(e @ WorldError::Failed { .. }) => Err(e),
    }
}

pub(super) fn problem(why: &PrepareError) -> Problem {
    match why {
        PrepareError::Volume { .. } | PrepareError::Machine(_) => {
            Problem { container: None, reason: "ContainerCreating", message: why.to_string() }
        }
        PrepareError::Container { container, why } => Problem {
            container: Some(container.clone()),
            reason: "CreateContainerConfigError",
            message: why.to_string(),
        },
    }
}
