//! The plan of a warm start, a pure function of a command line and its environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

pub type Environment = BTreeMap<String, String>;

/// torchrun's settings that a warm start understands. With any other of its variables set, torchrun itself is started.
const UNDERSTOOD: [&str; 7] = [
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "PET_TEE",
    "PET_MONITOR_INTERVAL",
];

/// Variables that interpreters and libraries read when they start. A zygote has these as the job has them.
const READ_AT_START: [&str; 10] =
    ["PATH", "HOME", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_CACHE_HOME"];
const READ_AT_START_PREFIXES: [&str; 18] = [
    "PYTHON",
    "LD_",
    "LC_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "NUMEXPR_",
    "MALLOC_",
    "GLIBC_",
    "TORCH",
    "PYTORCH_",
    "NUMPY_",
    "NPY_",
    "CUDA_",
    "TRITON_",
    "NVIDIA_",
];
/// Of these, what differs from job to job or rank to rank and is read later.
const READ_LATER: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"];

/// The ranks of one node.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// The interpreter, where the command names it.
    pub python: Option<String>,
    /// The script and its arguments.
    pub argv: Vec<String>,
    /// The environment of each rank, by local rank.
    pub ranks: Vec<Environment>,
    /// Lines are marked with their local rank.
    pub tee: bool,
    /// The rank of the node's first process.
    pub first_rank: u32,
}

/// Why a command is not started warm.
#[derive(Debug, thiserror::Error)]
pub enum NotWarm {
    #[error("{} is not Unicode", .0.display())]
    NotUnicode(OsString),
    #[error("{program} is not torchrun")]
    Program { program: String },
    #[error("there is no command")]
    NoCommand,
    #[error("there is no script")]
    NoScript,
    #[error("torchrun is given {flag}")]
    Flag { flag: String },
    /// A setting of torchrun's that is not understood here.
    #[error("{name} is set")]
    Set { name: String },
    #[error("{name} is not set")]
    Unset { name: String },
    #[error("{name} is {value}")]
    Value { name: String, value: String },
    #[error("only torch can count the GPUs")]
    Gpus,
    #[error("the working directory: {0}")]
    Folder(io::Error),
    #[error("{name} is not on the PATH")]
    NotOnPath { name: String },
    #[error("{}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{} does not say which Python runs it", path.display())]
    NoInterpreter { path: PathBuf },
    #[error("the node's agent names no process that waits: {0}")]
    Agent(io::Error),
    /// What the agent, or the process that waits, said.
    #[error("{0}")]
    Refused(String),
    #[error("the process that waits with torch did not answer within {secs} s; it is replaced")]
    Silent { secs: u64 },
    #[error("no process that waits with torch stays")]
    NoneStays,
}

impl Plan {
    /// Of `torchrun SCRIPT ARGUMENTS…`, or `PYTHON -m torch.distributed.run SCRIPT ARGUMENTS…`, with torchrun's settings in the
    /// environment.
    ///
    /// # Errors
    /// Why torchrun itself has to be started.
    pub fn of(words: &[String], env: &Environment) -> Result<Self, NotWarm> {
        let (python, argv) = match words {
            [program, argv @ ..] if program == "torchrun" => (None, argv),
            [python, flag, module, argv @ ..] if flag == "-m" && module == "torch.distributed.run" => {
                (Some(python), argv)
            }
            [program, ..] => return Err(NotWarm::Program { program: program.clone() }),
            [] => return Err(NotWarm::NoCommand),
        };
        match argv.first() {
            None => return Err(NotWarm::NoScript),
            Some(flag) if flag.starts_with('-') => return Err(NotWarm::Flag { flag: flag.clone() }),
            Some(_) => {}
        }
        if let Some(name) = env.keys().find(|name| name.starts_with("PET_") && !UNDERSTOOD.contains(&name.as_str())) {
            return Err(NotWarm::Set { name: name.clone() });
        }
        let tee = match env.get("PET_TEE").map(String::as_str) {
            None | Some("0") => false,
            Some("3") => true,
            Some(other) => return Err(NotWarm::Value { name: "PET_TEE".to_owned(), value: other.to_owned() }),
        };
        let unset = |name: &str| NotWarm::Unset { name: name.to_owned() };
        let number = |name: &str| -> Result<u32, NotWarm> {
            let text = env.get(name).ok_or_else(|| unset(name))?;
            text.parse().map_err(|_| NotWarm::Value { name: name.to_owned(), value: text.clone() })
        };
        let (nodes, node) = (number("PET_NNODES")?, number("PET_NODE_RANK")?);
        let processes = match env.get("PET_NPROC_PER_NODE").map(String::as_str) {
            Some("auto" | "gpu") => visible_gpus(env).ok_or(NotWarm::Gpus)?,
            _ => number("PET_NPROC_PER_NODE")?,
        };
        let (address, port) = (env.get("PET_MASTER_ADDR"), number("PET_MASTER_PORT")?);
        let address = address.ok_or_else(|| unset("PET_MASTER_ADDR"))?;
        let mut common = env.clone();
        let mut set = |name: &str, value: String| common.insert(name.to_owned(), value);
        set("GROUP_RANK", node.to_string());
        set("ROLE_NAME", "default".to_owned());
        set("LOCAL_WORLD_SIZE", processes.to_string());
        set("WORLD_SIZE", (nodes * processes).to_string());
        set("GROUP_WORLD_SIZE", nodes.to_string());
        set("ROLE_WORLD_SIZE", (nodes * processes).to_string());
        set("MASTER_ADDR", address.clone());
        set("MASTER_PORT", port.to_string());
        set("TORCHELASTIC_RESTART_COUNT", "0".to_owned());
        set("TORCHELASTIC_MAX_RESTARTS", "0".to_owned());
        set("TORCHELASTIC_RUN_ID", "none".to_owned());
        // rank 0 holds the store, for there is no agent that could
        set("TORCHELASTIC_USE_AGENT_STORE", "False".to_owned());
        common.entry("TORCH_NCCL_ASYNC_ERROR_HANDLING".to_owned()).or_insert_with(|| "1".to_owned());
        if processes > 1 {
            common.entry("OMP_NUM_THREADS".to_owned()).or_insert_with(|| "1".to_owned());
        }
        let first_rank = node * processes;
        let ranks = (0..processes).map(|local| {
            let mut env = common.clone();
            env.insert("LOCAL_RANK".to_owned(), local.to_string());
            env.insert("RANK".to_owned(), (first_rank + local).to_string());
            env.insert("ROLE_RANK".to_owned(), (first_rank + local).to_string());
            env
        });
        Ok(Self { python: python.cloned(), argv: argv.to_vec(), ranks: ranks.collect(), tee, first_rank })
    }

    /// What of the ranks' environment a zygote must have.
    pub fn read_at_start(&self) -> Environment {
        let is_read = |name: &str| {
            READ_AT_START.contains(&name)
                || READ_AT_START_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                    && !READ_LATER.contains(&name)
                    && !name.starts_with("TORCHELASTIC_")
        };
        let first = self.ranks.first().into_iter().flatten();
        first.filter(|(name, _)| is_read(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// The GPUs that the agent gave to the container.
fn visible_gpus(env: &Environment) -> Option<u32> {
    let list = env.get("CUDA_VISIBLE_DEVICES").filter(|list| !list.is_empty())?;
    u32::try_from(list.split(',').count()).ok()
}

/// The interpreter that runs this program, by its first lines: `#!/path/python3`, `#!/usr/bin/env python3`, or a shell that starts
/// the interpreter (what pip writes where the path is long or has a blank). A name without `/` is to be looked for.
pub fn interpreter(text: &str) -> Option<&str> {
    let mut lines = text.lines();
    let first = lines.next()?.strip_prefix("#!")?.trim();
    let is_python = |path: &str| path.rsplit('/').next().is_some_and(|name| name.starts_with("python"));
    if let Some(name) = first.strip_prefix("/usr/bin/env ") {
        let name = name.trim();
        return (is_python(name) && !name.contains(' ')).then_some(name);
    }
    if first == "/bin/sh" {
        let quoted = lines.next()?.strip_prefix("'''exec' ")?;
        let path = match quoted.strip_prefix('"') {
            Some(rest) => rest.split_once('"')?.0,
            None => quoted.split_once(' ')?.0,
        };
        return is_python(path).then_some(path);
    }
    (is_python(first) && !first.contains(' ')).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(more: &[(&str, &str)]) -> Environment {
        let base = [
            ("PET_NNODES", "2"),
            ("PET_NPROC_PER_NODE", "2"),
            ("PET_NODE_RANK", "1"),
            ("PET_MASTER_ADDR", "job-node-0-0.job"),
            ("PET_MASTER_PORT", "29500"),
            ("PATH", "/bin"),
            ("LR", "0.1"),
        ];
        base.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn plan(words: &str, more: &[(&str, &str)]) -> Result<Plan, NotWarm> {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        Plan::of(&words, &environment(more))
    }

    #[test]
    fn ranks_have_torchruns_variables() {
        let plan = plan("torchrun train.py --lr 1", &[("PET_TEE", "3")]).unwrap();
        assert_eq!(plan.argv, ["train.py", "--lr", "1"]);
        assert!(plan.tee);
        let of = |local: usize, name: &str| plan.ranks[local][name].as_str();
        assert_eq!((of(0, "RANK"), of(1, "RANK"), of(1, "LOCAL_RANK")), ("2", "3", "1"));
        assert_eq!((of(0, "WORLD_SIZE"), of(0, "LOCAL_WORLD_SIZE"), of(0, "GROUP_RANK")), ("4", "2", "1"));
        assert_eq!((of(0, "MASTER_ADDR"), of(0, "MASTER_PORT")), ("job-node-0-0.job", "29500"));
        assert_eq!(of(0, "OMP_NUM_THREADS"), "1", "as torchrun has it for several processes");
        assert_eq!(of(0, "LR"), "0.1");
        let named = Plan::of(
            &["/venv/bin/python", "-m", "torch.distributed.run", "x.py"].map(str::to_owned),
            &environment(&[]),
        );
        assert_eq!(named.unwrap().python.as_deref(), Some("/venv/bin/python"));
    }

    #[test]
    fn a_zygote_depends_on_what_is_read_at_start_alone() {
        let set = [("OMP_NUM_THREADS", "4"), ("CUDA_VISIBLE_DEVICES", "0"), ("PYTHONPATH", "/x")];
        let read = plan("torchrun train.py", &set).unwrap().read_at_start();
        assert_eq!(read["OMP_NUM_THREADS"], "4");
        assert_eq!(read["PYTHONPATH"], "/x");
        for name in ["LR", "RANK", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "PET_NODE_RANK", "TORCHELASTIC_RUN_ID"] {
            assert!(!read.contains_key(name), "{name}");
        }
    }

    #[test]
    fn gpus_are_those_that_were_given() {
        let given = [("PET_NPROC_PER_NODE", "auto"), ("CUDA_VISIBLE_DEVICES", "2,5,6")];
        assert_eq!(plan("torchrun train.py", &given).unwrap().ranks.len(), 3);
        assert!(plan("torchrun train.py", &given[..1]).is_err());
    }

    #[test]
    fn what_only_torchrun_can_do_is_left_to_it() {
        let words = [
            ("python3 train.py", "python3 is not torchrun"),
            ("torchrun --standalone train.py", "torchrun is given --standalone"),
            ("torchrun", "there is no script"),
        ];
        for (words, why) in words {
            assert_eq!(plan(words, &[]).unwrap_err().to_string(), why);
        }
        let variables = [
            ("PET_MAX_RESTARTS", "3", "PET_MAX_RESTARTS is set"),
            ("PET_NNODES", "1:4", "PET_NNODES is 1:4"),
            ("PET_TEE", "1", "PET_TEE is 1"),
            ("PET_NPROC_PER_NODE", "cpu", "PET_NPROC_PER_NODE is cpu"),
        ];
        for (name, value, why) in variables {
            assert_eq!(plan("torchrun train.py", &[(name, value)]).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn interpreters() {
        let cases = [
            ("#!/venv/bin/python3\nimport re\n", Some("/venv/bin/python3")),
            ("#!/usr/bin/env python3\n", Some("python3")),
            ("#!/bin/sh\n'''exec' \"/a b/bin/python3.11\" \"$0\" \"$@\"\n' '''\n", Some("/a b/bin/python3.11")),
            ("#!/bin/sh\n'''exec' /long/bin/python \"$0\" \"$@\"\n", Some("/long/bin/python")),
            ("#!/usr/bin/env bash\nset -e\n", None),
            ("#!/bin/sh\nexec python3\n", None),
            ("\u{7f}ELF", None),
        ];
        for (text, found) in cases {
            assert_eq!(interpreter(text), found, "{text}");
        }
    }
}
