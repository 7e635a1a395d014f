//! What every MPI launcher needs: a list of hosts, and keys for SSH. The TrainJob plugin and the MPIJob controller share it.

use api::mpi::Implementation;
use api::mpi::names::{PRIVATE_KEY, PUBLIC_KEY, SECRET_TYPE};
use reconcile::Generator;
use serde_json::{Value, json};

/// The keys that are made: P-521, which FIPS 186 knows.
pub(crate) const KEYS: Generator = Generator::SshKeyPair;

/// A hostfile, one line for each host, in the form that the MPI reads.
pub(crate) fn hostfile(
    implementation: Implementation,
    hosts: impl IntoIterator<Item = String>,
    slots: impl std::fmt::Display,
) -> String {
    let line = |host: String| match implementation {
        Implementation::OpenMpi => format!("{host} slots={slots}\n"),
        Implementation::Intel | Implementation::Mpich => format!("{host}:{slots}\n"),
    };
    hosts.into_iter().map(line).collect()
}

/// Makes a Secret one that holds fresh keys once it is stored.
pub(crate) fn hold_keys(secret: &mut Value) {
    secret["type"] = json!(SECRET_TYPE);
    secret["stringData"] = json!({PRIVATE_KEY: "{private}", PUBLIC_KEY: "{public}"});
}
