//! MPI on this machine: the pods of a laptop run the machine's own programs.

use super::manifest::{Here, Implementation, wrong};

use crate::setting::INHERITED;
use client::ClientError;
use client::codes::ErrorCode;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Variables that pods inherit from the caller.
pub fn here() -> Result<Here, ClientError> {
    let directory = std::env::current_dir()
        .map_err(|source| ClientError::Io { doing: "find", path: PathBuf::from("."), source })?
        .to_string_lossy()
        .into_owned();
    let variables = INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    Ok(Here { directory, variables: variables.collect() })
}

/// Refuses a job if its mpirun is missing here, or belongs to another MPI than the job's. `path`: the launcher's. `from_file`: the job
/// comes from a file, not from flags.
pub fn check(implementation: &str, command: &[&str], path: &str, from_file: bool) -> Result<(), ClientError> {
    let Some(program) = command.first().filter(|program| {
        let name = Path::new(program).file_name();
        name == Some(OsStr::new("mpirun")) || name == Some(OsStr::new("mpiexec"))
    }) else {
        return Ok(());
    };
    let Some(found) = on_path(program, path) else {
        let told = format!("there is no {program} on this machine: {}", install(implementation));
        return Err(ClientError::Usage(ErrorCode::ProgramMissing, told));
    };
    // a program that does not identify itself is left to the job
    let said = Command::new(&found).arg("--version").env("PATH", path).stdin(Stdio::null()).output();
    let Some(of) = said.ok().and_then(|said| maker(&String::from_utf8_lossy(&said.stdout))) else { return Ok(()) };
    // the server refuses one that does not exist
    let is_known = Implementation::ALL.iter().any(|known| known.as_str() == implementation);
    if of.as_str() == implementation || !is_known {
        return Ok(());
    }
    let of = of.as_str();
    let other = if from_file {
        format!("set spec.mpiImplementation to {of}")
    } else {
        format!("say --implementation {}", of.to_lowercase())
    };
    let (found, install) = (found.display(), install(implementation));
    Err(wrong(format!(
        "{found} is {of}'s, and the job is for {implementation}; install the other ({install}), or {other}"
    )))
}

/// Which MPI's mpirun prints this version. Intel's is a Hydra, too.
fn maker(version: &str) -> Option<Implementation> {
    let signs = [
        ("Open MPI", Implementation::OpenMpi),
        ("Intel(R) MPI", Implementation::Intel),
        ("HYDRA", Implementation::Mpich),
    ];
    signs.into_iter().find(|(sign, _)| version.contains(sign)).map(|(_, implementation)| implementation)
}

fn install(implementation: &str) -> &'static str {
    match implementation {
        "Intel" => "pip install impi-rt",
        "MPICH" => "pip install mpich",
        _ => "as root, apt-get install openmpi-bin",
    }
}

fn on_path(program: &str, path: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let runs =
        |file: &PathBuf| file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(runs);
    }
    std::env::split_paths(path).map(|folder| folder.join(program)).find(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mpi_is_told_by_what_its_mpirun_says() {
        for (version, expected) in [
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs to …", Some(Implementation::OpenMpi)),
            ("HYDRA build details:\n    Version: 5.0.2", Some(Implementation::Mpich)),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.18 Build …", Some(Implementation::Intel)),
            ("", None),
        ] {
            assert_eq!(maker(version), expected, "{version}");
        }
    }

    #[test]
    fn a_missing_mpi_is_told_with_its_package() {
        let told = |implementation: &str, command: &[&str]| {
            check(implementation, command, "/nowhere", false).map_err(|error| error.to_string())
        };
        for (implementation, package) in [("OpenMPI", "openmpi-bin"), ("Intel", "impi-rt"), ("MPICH", "mpich")] {
            let told = told(implementation, &["mpirun", "-n", "2", "a"]).expect_err("there is none");
            assert!(told.contains("no mpirun on this machine") && told.contains(package), "{told}");
        }
        assert_eq!(told("OpenMPI", &["horovodrun", "a"]), Ok(()), "not for us to judge");
    }

    #[test]
    fn another_mpi_is_told_in_the_words_of_who_asked() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("mpirun");
        std::fs::write(&program, "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n").expect("written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("may be run");
        let told = |implementation: &str, from_file| {
            let found = check(implementation, &[&program.display().to_string(), "a"], "/bin", from_file);
            found.map_err(|error| error.to_string())
        };
        let from_flags = told("Intel", false).expect_err("it is another");
        assert!(from_flags.contains("impi-rt") && from_flags.ends_with("say --implementation openmpi"), "{from_flags}");
        let from_file = told("MPICH", true).expect_err("it is another");
        assert!(from_file.ends_with("set spec.mpiImplementation to OpenMPI"), "{from_file}");
        assert_eq!(told("OpenMPI", true), Ok(()));
        assert_eq!(told("NoMPI", true), Ok(()), "the server says which there are");
    }
}
