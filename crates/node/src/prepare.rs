//! From a pod to what its shim runs: environment, command lines, volumes, names, devices; all resolved.

use crate::env::{self, Environment, Sources, expand};
use crate::fields::Facts;
use crate::files;
use crate::gpus;
use crate::identity::{self, Adapt, OwnNames, Peer};
use crate::poddir::PodDir;
use crate::probes::handlers::http_action;
use crate::programs;
use crate::volumes::{self, Place, Tokens, VolumeError, Volumes};
use crate::wire::{ContainerLaunch, Hook, Isolation, Launch, Limits, Mount, PROTOCOL, RestartPolicy, RestartRule};
use api::mpi::names::env::OPEN_MPI_5_HOSTFILE;
use api::mpi::names::{CONFIG_PATH, HOSTFILE};
use api::quantity::Quantity;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod, PodSpec, ResourceRequirements};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Default seconds between SIGTERM and SIGKILL, as Kubernetes has it.
const GRACE_SECS: u64 = 30;

/// What all pods of a node have in common.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The agent's directory: pods, claims, and a few programs.
    pub data: PathBuf,
    pub isolation: Isolation,
    /// The machine's own hosts file, which gets the names that pods give; `None`: pods have hosts files of their own, or it is
    /// read-only.
    pub machine_hosts: Option<PathBuf>,
    pub host_ip: Ipv4Addr,
    /// Host and port of the API server, for `KUBERNETES_SERVICE_HOST` and `_PORT`.
    pub api_server: Option<(String, u16)>,
    /// `cluster.local`
    pub domain: String,
    /// Bytes after which a container's log is rotated (10 MiB), and files kept per attempt (5).
    pub log_bytes_max: u64,
    pub log_files_max: u32,
    /// The node has GPUs: containers that ask for none see none.
    pub has_gpus: bool,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    /// The agent's group (cgroup v2); `None`: pods get none.
    pub cgroup: Option<PathBuf>,
    /// What every container's environment begins with.
    pub base_env: Vec<(String, String)>,
    /// Images behind which a program of this machine stands.
    pub stand_ins: Vec<programs::StandIn>,
}

/// What was chosen for one pod.
#[derive(Clone, Debug)]
pub struct Choice {
    pub peer: Peer,
    pub ports: BTreeMap<u16, u16>,
    pub gpus: BTreeMap<String, Vec<u32>>,
    pub start_time: Timestamp,
}

/// Why a pod cannot be started yet.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A volume cannot be made: containers wait as `ContainerCreating`.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {why}")]
    Volume { volume: String, why: VolumeError },
    /// A container's description cannot be resolved: it waits as `CreateContainerConfigError`.
    #[error("{why}")]
    Container { container: String, why: VolumeError },
    /// The machine: disk, processes, a token.
    #[error("{0}")]
    Machine(String),
}

impl Settings {
    pub fn facts(&self, address: Ipv4Addr) -> Facts {
        Facts {
            pod_ip: address.to_string(),
            host_ip: self.host_ip.to_string(),
            node_cpu_milli: self.cpu_milli,
            node_memory_bytes: self.memory_bytes,
        }
    }
}

fn gpu_limit(container: &Container) -> usize {
    let limit = container.resources.as_ref().and_then(|r| r.limits.as_ref()?.get(gpus::RESOURCE));
    let count = limit.and_then(|limit| Quantity::parse(&limit.0).ok()).map_or(0, Quantity::value);
    usize::try_from(count).unwrap_or(0)
}

/// Gives each container the GPUs it asks for, out of the free ones; `None` if there are not enough. Init containers are
/// gone when the others start, so they get some of the same.
pub fn allot_gpus(pod: &Pod, free: &BTreeSet<u32>) -> Option<BTreeMap<String, Vec<u32>>> {
    let spec = pod.spec.as_ref()?;
    let (sidecars, init): (Vec<_>, Vec<_>) =
        spec.init_containers.iter().flatten().partition(|c| c.restart_policy.as_deref() == Some("Always"));
    let wants = |containers: Vec<&Container>| -> BTreeMap<String, usize> {
        let wants = containers.into_iter().map(|c| (c.name.clone(), gpu_limit(c)));
        wants.filter(|(_, count)| *count > 0).collect()
    };
    let mut given = gpus::allot(free, &wants(spec.containers.iter().chain(sidecars).collect()))?;
    for (name, count) in wants(init) {
        let taken: Vec<u32> = given.values().flatten().copied().collect();
        let order = taken.iter().chain(free.iter().filter(|gpu| !taken.contains(gpu)));
        let some: Vec<u32> = order.take(count).copied().collect();
        if some.len() < count {
            return None;
        }
        given.insert(name, some);
    }
    Some(given)
}

/// Fills the pod's directory and describes what its shim is to run. Nothing runs yet.
///
/// # Errors
/// What is missing; the same call may succeed later.
pub fn prepare(
    settings: &Settings,
    dir: &PodDir,
    pod: &Pod,
    choice: &Choice,
    sources: &Sources,
    tokens: &Tokens,
) -> Result<Launch, PrepareError> {
    let machine = |e: std::io::Error| PrepareError::Machine(format!("{}: {e}", dir.path().display()));
    dir.create().map_err(machine)?;
    let spec = pod.spec.as_ref().ok_or_else(|| PrepareError::Machine("a pod without spec".to_owned()))?;
    let facts = settings.facts(choice.peer.address);
    let place = Place { dir, data: &settings.data };
    let volumes = volumes::make(&place, pod, &facts, sources, tokens)
        .map_err(|(volume, why)| PrepareError::Volume { volume, why })?;
    let build = Build { settings, dir, pod, choice, sources, facts, volumes };
    let init = spec.init_containers.iter().flatten().map(|container| build.container(container, true));
    let init_containers = init.collect::<Result<Vec<_>, _>>()?;
    let containers = spec.containers.iter().map(|c| build.container(c, false)).collect::<Result<Vec<_>, _>>()?;
    let seconds = |value: Option<i64>| value.and_then(|v| u64::try_from(v).ok());
    Ok(Launch {
        protocol: PROTOCOL,
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        isolation: settings.isolation.clone(),
        hostname: choice.peer.hostname.clone(),
        address: choice.peer.address.to_string(),
        hosts_file: dir.hosts(),
        restart_policy: build.policy(),
        grace_secs: seconds(spec.termination_grace_period_seconds).unwrap_or(GRACE_SECS),
        active_deadline_secs: seconds(spec.active_deadline_seconds),
        start_time: choice.start_time,
        tmpfs: build.volumes.tmpfs,
        init_containers,
        containers,
        gpus: choice.gpus.clone(),
        ports: choice.ports.clone(),
        subdomain: choice.peer.subdomain.clone(),
        cgroup: settings.cgroup.as_ref().map(|group| group.join(dir.uid())),
        limits: pod_limits(spec),
        log_bytes_max: settings.log_bytes_max,
        log_files_max: settings.log_files_max,
    })
}

struct Build<'a> {
    settings: &'a Settings,
    dir: &'a PodDir,
    pod: &'a Pod,
    choice: &'a Choice,
    sources: &'a Sources,
    facts: Facts,
    volumes: Volumes,
}

impl Build<'_> {
    fn policy(&self) -> RestartPolicy {
        let policy = self.pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref());
        RestartPolicy::parse(policy.unwrap_or_default())
    }

    fn container(&self, container: &Container, is_init: bool) -> Result<ContainerLaunch, PrepareError> {
        let name = &container.name;
        let wrong = |why: VolumeError| PrepareError::Container { container: name.clone(), why };
        let machine = |e: std::io::Error| PrepareError::Machine(format!("container {name}: {e}"));
        let work = self.dir.work(name);
        fs::create_dir_all(&work).map_err(machine)?;
        let termination_message = self.dir.termination_log(name);
        files::make_empty(&termination_message).map_err(machine)?;

        let without_names = !self.settings.isolation.is_hosts();
        let adapt = Adapt {
            me: &self.choice.peer,
            domain: &self.settings.domain,
            ports: &self.choice.ports,
            without_names,
            own_names: &match self.settings.machine_hosts {
                None => OwnNames::of(self.pod),
                // names work
                Some(_) => OwnNames::default(),
            },
        };
        let adapt_variable = |name: &str, value: String| adapt.variable(name, value);
        let mut base = self.base_environment(name);
        if programs::mounts_hosts(container) {
            // Open MPI 5 passes over what operators set for those before it, and would run all ranks here
            base.set(OPEN_MPI_5_HOSTFILE, format!("{CONFIG_PATH}/{HOSTFILE}"));
        }
        let mut env = env::resolve(self.pod, container, &self.facts, self.sources, base, adapt_variable)
            .map_err(|why| wrong(why.into()))?;
        // Also where the pod brings a PATH of its own: it was made for a machine, not for what machines lack.
        let path = programs::with_programs(env.get("PATH").unwrap_or_default(), &self.settings.data.join("bin"));
        env.set("PATH", path);
        let mut mounts = volumes::mounts(&self.volumes, container, &env).map_err(wrong)?;
        let message_path = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
        mounts.push(Mount {
            source: termination_message.clone(),
            target: PathBuf::from(message_path),
            read_only: false,
        });
        let words = container.command.iter().flatten().chain(container.args.iter().flatten());
        let words = words.map(|word| adapt.text(&expand(word, |name| env.get(name))));
        let mut argv: Vec<String> = words.collect();
        let stand_in = self.settings.stand_ins.iter().find(|stand_in| stand_in.stands_for(container));
        if let Some(stand_in) = stand_in {
            argv.clone_from(&stand_in.argv);
            env.set(&stand_in.variable, stand_in.folder.clone());
        }
        if programs::is_sshd(container) {
            argv[0] = self.settings.data.join("bin/sshd").to_string_lossy().into_owned();
        }
        if programs::is_mpi_wait(container) {
            argv[0] = self.settings.data.join("bin/mpi-wait").to_string_lossy().into_owned();
        }
        let mut working_dir = container.working_dir.as_deref().filter(|d| !d.is_empty()).map_or(work, PathBuf::from);
        let lifecycle = container.lifecycle.as_ref();
        let hook = |handler: Option<&LifecycleHandler>| self.hook(container, handler?);
        let mut post_start = lifecycle.and_then(|l| hook(l.post_start.as_ref()));
        let mut pre_stop = lifecycle.and_then(|l| hook(l.pre_stop.as_ref()));
        let unmounted = stand_in.filter(|stand_in| {
            !mounts.iter().any(|mount| std::path::Path::new(&stand_in.folder).starts_with(&mount.target))
        });
        let unmounted = unmounted.map(|stand_in| {
            format!(
                "container {name:?} fills {}, but mounts no volume there, so nobody else would see what it fetches; mount one at {} \
                 or above",
                stand_in.folder, stand_in.folder
            )
        });
        if without_names {
            // No mounts in plain mode: what names a mount path is made to name the volume itself, inner paths first.
            mounts.sort_by_key(|mount| std::cmp::Reverse(mount.target.components().count()));
            let moved = |text: &str| {
                mounts.iter().fold(text.to_owned(), |text, mount| {
                    let (target, source) = (mount.target.to_string_lossy(), mount.source.to_string_lossy());
                    identity::replace_path(&text, &target, &source)
                })
            };
            argv.iter_mut().for_each(|word| *word = moved(word));
            for hook in [&mut post_start, &mut pre_stop].into_iter().flatten() {
                match hook {
                    Hook::Exec(argv) => argv.iter_mut().for_each(|word| *word = moved(&adapt.text(word))),
                    Hook::SleepSecs(_) | Hook::HttpGet(_) | Hook::Invalid(_) => {}
                }
            }
            env.iter_mut().filter(|(name, _)| *name != "PATH").for_each(|(_, value)| *value = moved(value));
            working_dir = PathBuf::from(moved(&working_dir.to_string_lossy()));
            mounts.clear();
        }
        let lacks_command = container.command.as_ref().is_none_or(|c| c.is_empty()) && stand_in.is_none();
        let refused = lacks_command.then(|| {
            format!(
                "container {name:?} has no command: pods run as processes of this machine here, so there is no image \
                 {:?} whose entrypoint could be used; set the container's command",
                container.image.as_deref().unwrap_or_default()
            )
        });
        let refused = refused.or(unmounted);
        let own_policy = container.restart_policy.as_deref().map(RestartPolicy::parse);
        let sidecar = is_init && own_policy == Some(RestartPolicy::Always);
        let policy = match (own_policy, is_init, self.policy()) {
            (Some(own), _, _) => own,
            // An init container that succeeded is never started again; one that failed, unless the pod says Never.
            (None, true, RestartPolicy::Never) => RestartPolicy::Never,
            (None, true, RestartPolicy::Always | RestartPolicy::OnFailure) => RestartPolicy::OnFailure,
            (None, false, policy) => policy,
        };
        Ok(ContainerLaunch {
            name: name.clone(),
            argv,
            env: env.into_pairs(),
            working_dir,
            mounts,
            termination_message,
            fallback_to_logs: container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError"),
            restart_policy: policy,
            restart_rules: restart_rules(container),
            sidecar,
            startup_probe: container.startup_probe.is_some(),
            limits: limits(container.resources.as_ref()),
            post_start,
            pre_stop,
            stop_signal: lifecycle.and_then(|l| signal_number(l.stop_signal.as_deref()?)),
            refused,
        })
    }

    /// A lifecycle hook, resolved. `tcpSocket` fails, as it does with a kubelet (it is there for old manifests only).
    fn hook(&self, container: &Container, handler: &LifecycleHandler) -> Option<Hook> {
        if let Some(exec) = &handler.exec {
            return Some(Hook::Exec(exec.command.clone().unwrap_or_default()));
        }
        if let Some(action) = &handler.http_get {
            let address = self.choice.peer.address.to_string();
            return Some(match http_action(action, container, &address, &self.choice.ports) {
                Ok(get) => Hook::HttpGet(get),
                Err(why) => Hook::Invalid(why.to_string()),
            });
        }
        if let Some(sleep) = &handler.sleep {
            return Some(Hook::SleepSecs(u64::try_from(sleep.seconds).unwrap_or(0)));
        }
        handler.tcp_socket.as_ref().map(|_| Hook::Invalid("tcpSocket is not supported as a lifecycle hook".to_owned()))
    }

    /// What is there before the pod says anything: the host's, the API server's address, the host name, the devices.
    fn base_environment(&self, container: &str) -> Environment {
        let mut env = Environment::default();
        for (name, value) in &self.settings.base_env {
            env.set(name, value.clone());
        }
        if self.settings.has_gpus {
            let given = self.choice.gpus.get(container).map(Vec::as_slice).unwrap_or_default();
            gpus::environment(given).into_iter().for_each(|(name, value)| env.set(name, value));
        }
        env.set("HOSTNAME", self.choice.peer.hostname.clone());
        env.set(crate::orphans::MARK, self.pod.metadata.uid.clone().unwrap_or_default());
        if let Some((host, port)) = &self.settings.api_server {
            env.set("KUBERNETES_SERVICE_HOST", host.clone());
            env.set("KUBERNETES_SERVICE_PORT", port.to_string());
            env.set("KUBERNETES_SERVICE_PORT_HTTPS", port.to_string());
        }
        env
    }
}

/// What a container, or a pod, asks for by itself.
fn limits(resources: Option<&ResourceRequirements>) -> Limits {
    let Some(resources) = resources else { return Limits::default() };
    let quantity = |of: &Option<BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
                    name: &str| { Quantity::parse(&of.as_ref()?.get(name)?.0).ok() };
    let milli = |quantity: Quantity| u64::try_from(quantity.milli_value()).ok().filter(|milli| *milli > 0);
    let bytes = |quantity: Quantity| u64::try_from(quantity.value()).ok().filter(|bytes| *bytes > 0);
    Limits {
        memory_bytes: quantity(&resources.limits, "memory").and_then(bytes),
        memory_request_bytes: quantity(&resources.requests, "memory").and_then(bytes),
        cpu_milli: quantity(&resources.limits, "cpu").and_then(milli),
        cpu_request_milli: quantity(&resources.requests, "cpu").and_then(milli),
    }
}

/// Of a pod as a whole: its own where it has them, else the sum of its containers', where all have one (as the kubelet has it).
/// Init containers run one after another, so the greatest counts.
fn pod_limits(spec: &PodSpec) -> Limits {
    let own = limits(spec.resources.as_ref());
    let sum = |of: fn(&Limits) -> Option<u64>| -> Option<u64> {
        let asked = |container: &Container| of(&limits(container.resources.as_ref()));
        let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
        let (sidecars, init): (Vec<_>, Vec<_>) = spec.init_containers.iter().flatten().partition(is_sidecar);
        let beside = sidecars.iter().try_fold(0_u64, |sum, c| Some(sum.saturating_add(asked(c)?)))?;
        let main = spec.containers.iter().try_fold(beside, |sum, c| Some(sum.saturating_add(asked(c)?)))?;
        init.iter().try_fold(main, |most, c| Some(most.max(asked(c)?.saturating_add(beside))))
    };
    Limits {
        memory_bytes: own.memory_bytes.or_else(|| sum(|limits| limits.memory_bytes)),
        memory_request_bytes: own.memory_request_bytes.or_else(|| sum(|limits| limits.memory_request_bytes)),
        cpu_milli: own.cpu_milli.or_else(|| sum(|limits| limits.cpu_milli)),
        cpu_request_milli: own.cpu_request_milli.or_else(|| sum(|limits| limits.cpu_request_milli)),
    }
}

fn restart_rules(container: &Container) -> Vec<RestartRule> {
    let rules = container.restart_policy_rules.iter().flatten().filter(|rule| rule.action == "Restart");
    rules
        .filter_map(|rule| rule.exit_codes.as_ref())
        .map(|codes| RestartRule { not_in: codes.operator == "NotIn", codes: codes.values.clone().unwrap_or_default() })
        .collect()
}

fn signal_number(name: &str) -> Option<i32> {
    name.parse::<nix::sys::signal::Signal>().ok().map(|signal| signal as i32)
}
