//! Advice about processes that talk to each other, MPI, downloads and certificates.

use super::{Advice, advice as say};
use crate::reason::Reason;

pub(super) fn advice(reason: Reason) -> Option<Advice> {
    talk(reason).or_else(|| downloads(reason))
}

fn talk(reason: Reason) -> Option<Advice> {
    match reason {
        Reason::AddressInUse => say(
            &[
                "port {port} is taken by another process, so {who} cannot listen there",
                "a port that {who} wants is taken by another process",
            ],
            &[
                ("@local see who listens", "ss -ltnp 'sport = :{port}'"),
                ("@local see who listens", "ss -ltnp"),
                ("leave the port to the launcher: no fixed MASTER_PORT, no fixed --master-port", "{rerun}"),
            ],
        ),
        Reason::NameNotResolved => say(
            &["{who} cannot resolve the host name {host}", "{who} cannot resolve a host name"],
            &[
                ("@local see whether this machine can", "getent hosts {host}"),
                ("@local see which name servers are asked", "cat /etc/resolv.conf"),
                ("@cluster see whether the job's Service exists", "{kubectl} get service,endpoints {job}"),
                (
                    "@cluster see whether the cluster's DNS works",
                    "{kubectl} -n kube-system get pods -l k8s-app=kube-dns",
                ),
            ],
        ),
        Reason::ConnectionRefused => say(
            &[
                "nothing listens at {address}, to which {who} connected",
                "nothing listens at the address that {who} connected to",
            ],
            &[
                (
                    "see what the other ranks say: the one that should listen may have failed or not started",
                    "trainyard logs {job} --tail 20{flags}",
                ),
                ("@local see who listens on this machine", "ss -ltnp"),
            ],
        ),
        Reason::NetworkUnreachable => say(
            &[
                "{who} has no network route to {address}",
                "{who} cannot reach an address: no route, or no answer in time",
            ],
            &[
                ("@local see the routes", "ip route"),
                ("@cluster see which policies restrict traffic", "{kubectl} get networkpolicy"),
            ],
        ),
        Reason::RendezvousTimeout => say(
            &[
                "only {joined} of {wanted} processes met before the time was out",
                "the other processes did not join {who} at the start",
            ],
            &[
                ("see which node did not start", "trainyard logs {job} --tail 20{flags}"),
                (
                    "all nodes must use the same address, port and number of nodes",
                    "{kubectl} get pods -l jobset.sigs.k8s.io/jobset-name={job} -o wide",
                ),
                ("@cluster see which policies restrict traffic", "{kubectl} get networkpolicy"),
            ],
        ),
        Reason::RendezvousFailed => say(
            &[
                "{who} could not reach the meeting place at {address}",
                "{who} could not reach the place where the processes meet",
            ],
            &[
                ("see what rank 0 says: it keeps the meeting place", "trainyard logs {job} --rank 0 --tail 20{flags}"),
                ("@cluster see which policies restrict traffic", "{kubectl} get networkpolicy"),
            ],
        ),
        Reason::MasterAddressMissing => say(
            &[
                "{variable} is not set: the script was not started by the launcher that sets it",
                "the launcher's variables are not set",
            ],
            &[
                ("start it by a runtime whose framework sets them (torch-distributed)", "{rerun_torch}"),
                ("see which runtimes there are", "trainyard runtimes{flags}"),
            ],
        ),
        Reason::GlooTimeout => say(
            &["{who} waited {seconds} for another rank, which did not take part", "another rank did not answer {who}"],
            &[
                ("see which rank did not take part: compare their last lines", "trainyard logs {job} --tail 5{flags}"),
                (
                    "all ranks must call the same operations: look for branches on rank, and for unequal numbers of batches",
                    "",
                ),
                ("where a rank may take longer, allow it: init_process_group(timeout=...)", ""),
            ],
        ),
        Reason::RanksOutOfStep => say(
            &[
                "ranks called different collective operations: {message}",
                "ranks called different collective operations",
            ],
            &[
                ("let PyTorch check each operation", "{rerun_detail}"),
                ("all ranks must call the same operations with the same shapes: look for branches on rank", ""),
            ],
        ),
        Reason::PeerLost => say(
            &[
                "{who} lost its connection to another rank, which left no reason",
                "the connection to another rank broke",
            ],
            &[
                ("see the last lines of all ranks", "trainyard logs {job} --tail 20{flags}"),
                (
                    "@local see whether the kernel killed one for memory",
                    "dmesg -T | grep -i -E 'out of memory|oom-kill' | tail",
                ),
                ("where a rank was done first: give all as many batches (DistributedSampler with drop_last=True)", ""),
            ],
        ),
        Reason::ConnectionLost => say(
            &[
                "the other side of a connection or pipe of {who} closed it ({place})",
                "the other side of a connection or pipe of {who} closed it",
            ],
            &[
                ("see whether what it talks to still runs, and what it says", "trainyard logs {job} --tail 20{flags}"),
                ("run it again", "{rerun}"),
            ],
        ),
        Reason::CoordinatorUnreachable => say(
            &[
                "{who} could not reach the framework's coordinator at {address}",
                "{who} could not reach the framework's coordinator",
            ],
            &[
                ("see what rank 0 says: it runs the coordinator", "trainyard logs {job} --rank 0 --tail 20{flags}"),
                ("all ranks must have the same address and number of processes; leave both to the runtime", ""),
            ],
        ),
        Reason::MpiSlots => say(
            &[
                // it is Open MPI that speaks of slots
                "this mpirun is Open MPI's, which does not read the hosts of a job for {other_mpi}",
                "mpirun was asked for {wanted} processes, and the nodes have fewer slots",
                "mpirun was asked for more processes than the nodes have slots",
            ],
            &[
                ("ask for more processes on each node, or leave out mpirun's -n", "{rerun_nproc}"),
                ("set mlPolicy.mpi.numProcPerNode of the runtime", "trainyard runtimes{flags}"),
                (
                    "@local let {other_mpi}'s mpirun be first on the PATH of `trainyard up`, or set spec.mpiImplementation to OpenMPI",
                    "",
                ),
                ("@cluster use an image with {other_mpi}, or set spec.mpiImplementation to OpenMPI", ""),
                ("spec.slotsPerWorker ({slots}) times the workers is how many there may be", ""),
            ],
        ),
        Reason::MpiSsh => say(
            &["mpirun could not reach {host} by ssh: {message}", "mpirun could not reach a node by ssh"],
            &[
                ("see whether the nodes are up", "{kubectl} get pods -l jobset.sigs.k8s.io/jobset-name={job} -o wide"),
                (
                    "the nodes' image needs sshd, and the keys' volume must be where its user looks (sshAuthMountPath)",
                    "",
                ),
            ],
        ),
        Reason::MpiDaemonLost => say(
            &["mpirun lost a node, or could not start its daemon there"],
            &[
                ("see the nodes' last lines", "trainyard logs {job} --tail 20{flags}"),
                ("see whether the nodes are up", "{kubectl} get pods -l jobset.sigs.k8s.io/jobset-name={job} -o wide"),
            ],
        ),
        Reason::MpiAsRoot => say(
            &["mpirun refuses to run as root"],
            &[
                ("allow it", "{rerun_mpi_root}"),
                ("set OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 with --env", ""),
            ],
        ),
        Reason::MpiProcessFailed => say(
            &[
                "a process that mpirun started ended with exit code {child_code}",
                "a process that mpirun started failed",
            ],
            &[
                ("see the last lines of all ranks", "trainyard logs {job} --tail 50{flags}"),
                ("correct it, then run it again", "{rerun}"),
            ],
        ),
        Reason::WorkersNotReachable => say(
            &["the launcher waited for its workers in vain: {message}", "the launcher waited for its workers in vain"],
            &[
                (
                    "see whether the workers are up",
                    "{kubectl} get pods -l jobset.sigs.k8s.io/jobset-name={job} -o wide",
                ),
                (
                    "@cluster see what a worker's SSH server says",
                    "trainyard mpijob logs {job} --worker 0 --tail 20{flags}",
                ),
                (
                    "@cluster the workers' image needs an SSH server, on port 22, 2222 or one that its first container names",
                    "",
                ),
                ("@cluster see which policies restrict traffic", "{kubectl} get networkpolicy"),
            ],
        ),
        Reason::WorkersAwaited => say(
            &[
                "the launcher waits for {missing}: {ready} of {wanted} workers are ready",
                "the launcher waits until its workers answer by SSH: {ready} of {wanted} are ready",
                "the launcher waits for its workers",
            ],
            &[("see the pods", "{kubectl} get pods -l jobset.sigs.k8s.io/jobset-name={job} -o wide")],
        ),
        Reason::WorkersNotUsed => say(
            &["the job ended well, but all ranks ran in the launcher: mpirun started none in a worker"],
            &[
                (
                    "where it is Open MPI 5: set PRTE_MCA_prte_default_hostfile=/etc/mpi/hostfile for the launcher, as `mpijob create` does",
                    "",
                ),
                ("let the launcher's command be mpirun, mpiexec or horovodrun, without a hostfile of its own", ""),
                ("the mpirun must be {mpi}'s, as spec.mpiImplementation says: another one does not find the hosts", ""),
                ("see what the launcher runs", "{kubectl} get mpijob {job} -o yaml"),
            ],
        ),
        _ => None,
    }
}

fn downloads(reason: Reason) -> Option<Advice> {
    const TOKEN: (&str, &str) =
        ("give the job a token: --env HF_TOKEN=… (a Secret in the runtime where others may read the job)", "");
    match reason {
        Reason::HubUnauthorized => say(
            &[
                "the hub does not let {who} in (401): {url}",
                "the hub does not let {who} in (401): no token, a wrong one, or no such repository",
            ],
            &[TOKEN, ("see whether your token is valid", "hf auth whoami")],
        ),
        Reason::GatedRepository => say(
            &["{url} is gated, and {who} may not read it", "the repository is gated, and {who} may not read it"],
            &[
                (
                    "ask for access on the repository's page, then give the job the token of that account: --env HF_TOKEN=…",
                    "",
                ),
                ("see whose token you have", "hf auth whoami"),
            ],
        ),
        Reason::HubNotFound => say(
            &["the hub has no {url}", "the repository, revision or file does not exist on the hub (404)"],
            &[("check its name and revision; a private one looks the same without a token", "")],
        ),
        Reason::RateLimited => say(
            &["the server refuses further requests of {who} for a while (429)"],
            &[
                ("wait some minutes, then run it again", "{rerun}"),
                ("let one rank download while the others wait, and give a token", ""),
            ],
        ),
        Reason::HubUnreachable => say(
            &["{who} cannot reach {host}", "{who} cannot reach the hub: no network route, no proxy, or no name server"],
            &[
                ("@local see whether this machine can", "curl -sSI https://{host}"),
                ("where a proxy is needed, pass it on: --env HTTPS_PROXY=…", ""),
                ("@cluster see which policies restrict traffic", "{kubectl} get networkpolicy"),
                ("or use files that are there: --env HF_HUB_OFFLINE=1 with a filled cache", ""),
            ],
        ),
        Reason::ProxyFailed => say(
            &["the proxy does not let {who} through: {message}", "the proxy does not let {who} through"],
            &[
                ("@local see which proxy is set", "env | grep -i _proxy"),
                ("pass on the right one: --env HTTPS_PROXY=…, or exempt the host: --env NO_PROXY=HOST", ""),
            ],
        ),
        Reason::TrackerLogin => say(
            &["the experiment tracker of {who} has no key, or does not accept it"],
            &[
                (
                    "give the job a key: --env WANDB_API_KEY=… (a Secret in the runtime where others may read the job)",
                    "",
                ),
                ("or keep the records on disk", "{rerun_offline}"),
            ],
        ),
        Reason::TlsFailed => say(
            &[
                "{who} could not set up an encrypted connection: {message}",
                "{who} could not set up an encrypted connection",
            ],
            &[
                ("check port and scheme: a server that speaks plain HTTP, or a proxy in between, answers so", ""),
                ("@local see which proxy is set", "env | grep -i _proxy"),
            ],
        ),
        Reason::HttpError => say(
            &["a server answered {who} with an error: {message}", "a server answered with an error"],
            &[("look at the address; where the server is at fault, run it again later", "{rerun}")],
        ),
        Reason::CertificateNotValid => say(
            &["a certificate is not valid at this time: {message}", "a certificate has expired or is not valid yet"],
            &[
                ("see whether the clock is right", "date -u"),
                ("where the clock is right, the server's certificate must be renewed", ""),
            ],
        ),
        Reason::CertificateNotTrusted => say(
            &[
                "{who} does not trust the server's certificate: {message}",
                "{who} does not trust the server's certificate",
            ],
            &[
                (
                    "pass on the authority's file where a proxy signs: --env SSL_CERT_FILE=… --env REQUESTS_CA_BUNDLE=…",
                    "",
                ),
                ("@local install the system's authorities", "update-ca-certificates"),
            ],
        ),
        Reason::InitializerFailed => say(
            &["{who} failed: {last}", "the step that fetches the dataset or model failed"],
            &[
                ("see what it says", "trainyard logs {job} --step {step}{flags}"),
                ("correct storageUri of the job's initializer", "{kubectl} get trainjob {job} -o yaml"),
            ],
        ),
        _ => None,
    }
}
