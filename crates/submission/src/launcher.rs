//! How a framework's processes are started.

use crate::code::Start;
use std::path::Path;

/// The program that starts the processes of a framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launcher {
    Torchrun,
    Mpirun,
    /// None: one process per node.
    Direct,
}

impl Launcher {
    /// The launcher of a runtime's framework.
    pub(crate) fn of(framework: &str) -> Self {
        match framework {
            "torch" | "torchtune" => Self::Torchrun,
            "deepspeed" | "mlx" | "mpi" => Self::Mpirun,
            _ => Self::Direct,
        }
    }

    /// The command line of one node. `python`: the interpreter, if it is not the one on the PATH; `names`: the job's variables.
    pub(crate) fn words<'a>(
        self,
        start: &Start,
        script: &str,
        python: Option<&Path>,
        names: impl Iterator<Item = &'a str>,
    ) -> Vec<String> {
        let python = python.map(|path| path.to_string_lossy().into_owned());
        let mut words: Vec<String> = Vec::new();
        let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        match (self, &python) {
            (Self::Torchrun, Some(python)) => add(&[python, "-m", "torch.distributed.run"]),
            (Self::Torchrun, None) => add(&["torchrun"]),
            (Self::Mpirun, _) => {
                // mpirun marks each line with its rank, which is then shown
                add(&["mpirun", "--hostfile", "/etc/mpi/hostfile", "--tag-output"]);
                // Only the launcher's container has the job's variables; mpirun passes its own settings on by itself.
                names.filter(|name| !name.starts_with("OMPI_")).for_each(|name| add(&["-x", name]));
            }
            (Self::Direct, _) => {}
        }
        match start {
            Start::Python if self == Self::Torchrun => {}
            Start::Python => add(&[python.as_deref().unwrap_or("python3")]),
            Start::Program(_) | Start::Command if self == Self::Torchrun => add(&["--no-python"]),
            Start::Program(_) | Start::Command => {}
        }
        if let Start::Program(before) = start {
            before.iter().for_each(|word| add(&[word]));
        }
        add(&[script]);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_framework_starts_scripts_programs_and_commands() {
        let shell = Start::Program(vec!["sh".to_owned()]);
        let venv = Some(Path::new("/my venv/bin/python"));
        let cases = [
            ("torch", Start::Python, None, "torchrun|x"),
            ("torch", Start::Python, venv, "/my venv/bin/python|-m|torch.distributed.run|x"),
            ("torchtune", shell.clone(), None, "torchrun|--no-python|sh|x"),
            ("jax", Start::Python, None, "python3|x"),
            ("plain", Start::Python, venv, "/my venv/bin/python|x"),
            ("plain", shell.clone(), venv, "sh|x"),
            ("plain", Start::Command, None, "x"),
            ("", Start::Python, None, "python3|x"),
            ("mpi", Start::Python, None, "mpirun|--hostfile|/etc/mpi/hostfile|--tag-output|-x|A|python3|x"),
            ("mlx", Start::Command, None, "mpirun|--hostfile|/etc/mpi/hostfile|--tag-output|-x|A|x"),
        ];
        for (framework, start, python, wanted) in cases {
            let words = Launcher::of(framework).words(&start, "x", python, ["A", "OMPI_B"].into_iter());
            assert_eq!(words.join("|"), wanted, "{framework} {start:?}");
        }
    }
}
