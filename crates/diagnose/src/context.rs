//! The values that fill sentences and commands for any reason: names, flags, and the command that runs the job again.

use crate::facts::Facts;
use crate::mpijob;
use crate::pattern::{Vars, quoted};
use api::object;
use api::quantity::Quantity;
use serde_json::Value;

/// What `run` sets by itself; all other variables of a job were given with `--env`.
const INHERITED: [&str; 14] = [
    "PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "HF_HOME",
    "HOME",
    "PYTHONUNBUFFERED",
    "PET_TEE",
    "PET_MONITOR_INTERVAL",
    "RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
];
/// Annotation of jobs that `run` made on this machine: where they run.
const DIRECTORY: &str = "trainyard.dev/directory";
/// Annotations of jobs that `run` made on a cluster: the script and the folder that it sent, where it was typed.
const SCRIPT: &str = "trainyard.dev/script";
const WORKDIR: &str = "trainyard.dev/workdir";
/// Resource of NVIDIA's GPUs.
const GPU: &str = "nvidia.com/gpu";

/// Modules that are called otherwise than their package.
const PACKAGES: [(&str, &str); 18] = [
    ("sklearn", "scikit-learn"),
    ("cv2", "opencv-python-headless"),
    ("PIL", "pillow"),
    ("yaml", "PyYAML"),
    ("skimage", "scikit-image"),
    ("bs4", "beautifulsoup4"),
    ("dateutil", "python-dateutil"),
    ("dotenv", "python-dotenv"),
    ("google.protobuf", "protobuf"),
    ("hydra", "hydra-core"),
    ("pytorch_lightning", "pytorch-lightning"),
    ("tensorboardX", "tensorboardX"),
    ("sentence_transformers", "sentence-transformers"),
    ("flash_attn", "flash-attn"),
    ("mpi4py.MPI", "mpi4py"),
    ("faiss", "faiss-cpu"),
    ("attr", "attrs"),
    ("kubeflow.trainer", "kubeflow"),
];

/// The package that brings a module.
pub(crate) fn package(module: &str) -> String {
    let top = module.split('.').next().unwrap_or(module);
    let named = PACKAGES.iter().find(|(known, _)| *known == module || *known == top);
    named.map_or(top, |(_, package)| package).to_owned()
}

/// What is known of the job, whatever its reason.
pub(crate) fn of(facts: &Facts) -> Vars {
    let mut vars = Vars::new();
    let job = &facts.job;
    let mut put = |name, text: String| _ = vars.insert(name, text);
    put("job", object::meta(job, "name").to_owned());
    put("ns", object::meta(job, "namespace").to_owned());
    let flags = if facts.home.flags.is_empty() { String::new() } else { format!(" {}", facts.home.flags.trim()) };
    put("flags", flags);
    put("kubectl", if facts.home.kubectl.is_empty() { "kubectl".to_owned() } else { facts.home.kubectl.clone() });
    put("runtime", object::text(&job["spec"]["runtimeRef"], "name").to_owned());
    if mpijob::is(job) {
        put("slots", job["spec"]["slotsPerWorker"].as_i64().unwrap_or(1).to_string());
        let mpi = match object::text(&job["spec"], "mpiImplementation") {
            "" => "OpenMPI",
            mpi => mpi,
        };
        if mpi != "OpenMPI" {
            put("other_mpi", mpi.to_owned());
        }
        put("mpi", mpi.to_owned());
    }
    let env = |name: &str| variable(job, name);
    if facts.home.local {
        let home = env("VIRTUAL_ENV").or_else(|| env("CONDA_PREFIX"));
        match home {
            Some(home) => {
                let python = quoted(&format!("{}/bin/python", home.trim_end_matches('/')));
                put("install", format!("{python} -m pip install"));
                put("python", python);
            }
            None => {
                put("python", "python3".to_owned());
                put(
                    "venv",
                    "python3 -m venv --system-site-packages .venv && . .venv/bin/activate && pip install ".to_owned(),
                );
            }
        }
        if let Some(directory) = object::annotation(job, DIRECTORY) {
            put("directory", quoted(directory));
        }
    }
    match Rerun::of(facts) {
        Some(rerun) => vars.extend(rerun.variants(facts)),
        // a job of a manifest: the same is made anew in its place
        None if !vars["job"].is_empty() && !has_own_files(job) => {
            let (kubectl, job) = (&vars["kubectl"], &vars["job"]);
            let kind = if mpijob::is(&facts.job) { "mpijob" } else { "trainjob" };
            let again = format!("{kubectl} get {kind} {job} -o yaml | {kubectl} replace --force -f -");
            vars.insert("rerun", again);
        }
        None => {}
    }
    vars
}

/// Whether files go with the job, which are gone with it: an older `run` sent them, and did not note what.
fn has_own_files(job: &Value) -> bool {
    let patches = job["spec"]["runtimePatches"].as_array().into_iter().flatten();
    patches.into_iter().any(|patch| patch["manager"] == "trainyard.dev/run")
}

fn variable(job: &Value, name: &str) -> Option<String> {
    let list = job["spec"]["trainer"]["env"].as_array()?;
    let found = list.iter().find(|variable| variable["name"] == name)?;
    found["value"].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The `trainyard run` that made a job, read from the job.
struct Rerun {
    /// `--workdir`.
    directory: Option<String>,
    flags: String,
    /// Flag and value, in the order in which `--help` lists them.
    options: Vec<(&'static str, String)>,
    words: Vec<String>,
}

impl Rerun {
    fn of(facts: &Facts) -> Option<Self> {
        let job = &facts.job;
        let sent = object::annotation(job, SCRIPT).filter(|_| !facts.home.local);
        let directory = match sent {
            Some(_) => object::annotation(job, WORKDIR),
            None => Some(object::annotation(job, DIRECTORY).filter(|_| facts.home.local)?),
        };
        let trainer = &job["spec"]["trainer"];
        let arguments = trainer["args"].as_array()?;
        let mut words: Vec<&str> = arguments.iter().filter_map(Value::as_str).collect();
        // sh -c 'cd "$0" && exec "$@"' DIRECTORY LAUNCHER … SCRIPT ARGS
        if trainer["command"][0] == "sh" && !words.is_empty() {
            words.remove(0);
        }
        // in pods what was sent lies elsewhere
        let is_sent = |word: &str| sent.is_some_and(|path| path.rsplit('/').next() == word.rsplit('/').next());
        let is_script = |word: &&str| word.ends_with(".py") || word.ends_with(".sh") || is_sent(word);
        let script = words.iter().position(is_script)?;
        let python = words[..script].iter().find(|word| word.starts_with('/') && word.contains("/python"));
        let python = python.map(|word| (*word).to_owned());
        let python = python.filter(|_| sent.is_none());
        let mut script: Vec<String> = words.split_off(script).into_iter().map(str::to_owned).collect();
        if let Some(sent) = sent {
            script[0] = sent.to_owned();
        }
        let mut options: Vec<(&'static str, String)> = Vec::new();
        let mut number = |flag, value: &Value| {
            if let Some(number) = value.as_i64() {
                options.push((flag, number.to_string()));
            }
        };
        number("--nodes", &trainer["numNodes"]);
        number("--nproc-per-node", &trainer["numProcPerNode"]);
        let runtime = object::text(&job["spec"]["runtimeRef"], "name");
        if !matches!(runtime, "" | "torch-distributed") {
            options.push(("--runtime", runtime.to_owned()));
        }
        if let Some(image) = trainer["image"].as_str().filter(|_| sent.is_some()) {
            options.push(("--image", image.to_owned()));
        }
        options.extend(python.map(|python| ("--python", python)));
        let retries = object::annotation(job, api::trainer::annotations::RETRIES).filter(|times| *times != "0");
        options.extend(retries.map(|times| ("--retries", times.to_owned())));
        let given = trainer["env"].as_array().into_iter().flatten();
        let is_given = |name: &str| !INHERITED.contains(&name) && !name.starts_with("TRAINYARD_");
        for variable in given.filter(|variable| is_given(object::text(variable, "name"))) {
            if let Some(value) = variable["value"].as_str() {
                options.push(("--env", format!("{}={value}", object::text(variable, "name"))));
            }
        }
        for (flag, resource) in [("--cpus", "cpu"), ("--memory", "memory"), ("--gpus", GPU)] {
            if let Some(quantity) = trainer["resourcesPerNode"]["requests"][resource].as_str() {
                options.push((flag, quantity.to_owned()));
            }
        }
        let flags = facts.home.flags.trim().to_owned();
        Some(Self { directory: directory.map(str::to_owned), flags, options, words: script })
    }

    /// With some options set to other values.
    fn with(&self, changes: &[(&'static str, &str)]) -> String {
        let mut options = self.options.clone();
        for (flag, value) in changes {
            // variables may be repeated, all else has one value
            let is_same = |(name, held): &&mut (&'static str, String)| {
                name == flag && (*flag != "--env" || held.split('=').next() == value.split('=').next())
            };
            match options.iter_mut().find(is_same) {
                Some((_, held)) => *held = (*value).to_owned(),
                None => options.push((flag, (*value).to_owned())),
            }
        }
        let mut text = "trainyard run".to_owned();
        if !self.flags.is_empty() {
            text += &format!(" {}", self.flags);
        }
        if let Some(directory) = &self.directory {
            text += &format!(" --workdir {}", quoted(directory));
        }
        options.iter().for_each(|(flag, value)| text += &format!(" {flag} {}", quoted(value)));
        self.words.iter().for_each(|word| text += &format!(" {}", quoted(word)));
        text
    }

    fn variants(&self, facts: &Facts) -> Vec<(&'static str, String)> {
        let variable = |text: &'static str| self.with(&[("--env", text)]);
        let mut all = vec![
            ("rerun", self.with(&[])),
            ("rerun_faulthandler", variable("PYTHONFAULTHANDLER=1")),
            ("rerun_utf8", variable("PYTHONUTF8=1")),
            ("rerun_offline", variable("WANDB_MODE=offline")),
            ("rerun_threads", variable("OMP_NUM_THREADS=1")),
            ("rerun_segments", variable("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")),
            ("rerun_blocking", variable("CUDA_LAUNCH_BLOCKING=1")),
            ("rerun_nccl", variable("NCCL_DEBUG=INFO")),
            ("rerun_detail", variable("TORCH_DISTRIBUTED_DEBUG=DETAIL")),
            (
                "rerun_mpi_root",
                self.with(&[("--env", "OMPI_ALLOW_RUN_AS_ROOT=1"), ("--env", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")]),
            ),
            ("rerun_torch", self.with(&[("--runtime", "torch-distributed")])),
            ("script_help", format!("python3 {} --help", quoted(&self.words[0]))),
            ("script", quoted(&self.words[0])),
        ];
        if let Some(held) = self.options.iter().find(|(flag, _)| *flag == "--memory")
            && let Ok(amount) = Quantity::parse(&held.1)
        {
            all.push(("rerun_memory", self.with(&[("--memory", &amount.times(2).to_string())])));
        }
        let gpus = largest(facts, GPU).map_or(0, Quantity::value);
        if gpus > 0 {
            let count = gpus.to_string();
            all.push(("rerun_nproc", self.with(&[("--nproc-per-node", &count)])));
            all.push(("rerun_gpus", self.with(&[("--gpus", &count)])));
        }
        let fits: Vec<(&'static str, String)> = [("--cpus", "cpu"), ("--memory", "memory"), ("--gpus", GPU)]
            .into_iter()
            .filter_map(|(flag, resource)| {
                let held = self.options.iter().find(|(name, _)| *name == flag)?;
                let most = largest(facts, resource)?;
                (Quantity::parse(&held.1).ok()? > most).then(|| (flag, most.to_string()))
            })
            .collect();
        if !fits.is_empty() {
            let changes: Vec<(&'static str, &str)> = fits.iter().map(|(flag, value)| (*flag, value.as_str())).collect();
            all.push(("rerun_fits", self.with(&changes)));
        }
        all
    }
}

/// The most that any node has of a resource; `None` where no node is known.
pub(crate) fn largest(facts: &Facts, resource: &str) -> Option<Quantity> {
    let amounts = facts
        .nodes
        .iter()
        .map(|node| Quantity::from_json(&node["status"]["allocatable"][resource]).unwrap_or_default());
    amounts.reduce(|a, b| if b > a { b } else { a })
}
