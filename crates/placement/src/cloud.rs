//! The clouds by name, and what takes the place of one.

macro_rules! clouds {
    ($($variant:ident $name:literal $display:literal)*) => {
        /// A cloud, or what takes the place of one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "names of companies")]
        pub enum Cloud {
            $($variant),*,
            /// This machine, which is ours: it is in no list of SkyPilot's clouds.
            Local,
        }

        impl Cloud {
            /// All of them, in the order in which messages list them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name in files.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),*, Self::Local => "local" }
            }

            /// Its name in messages and tables.
            pub fn display(self) -> &'static str {
                match self { $(Self::$variant => $display),*, Self::Local => "Local" }
            }
        }
    };
}

clouds! {
    Aws "aws" "AWS"
    Azure "azure" "Azure"
    Gcp "gcp" "GCP"
    Ibm "ibm" "IBM"
    Lambda "lambda" "Lambda"
    Scp "scp" "SCP"
    Oci "oci" "OCI"
    Kubernetes "kubernetes" "Kubernetes"
    RunPod "runpod" "RunPod"
    Vast "vast" "Vast"
    Vsphere "vsphere" "vSphere"
    Cudo "cudo" "Cudo"
    Fluidstack "fluidstack" "Fluidstack"
    Paperspace "paperspace" "Paperspace"
    PrimeIntellect "primeintellect" "PrimeIntellect"
    Do "do" "DO"
    Nebius "nebius" "Nebius"
    Ssh "ssh" "SSH"
    Slurm "slurm" "Slurm"
    Hyperbolic "hyperbolic" "Hyperbolic"
    Seeweb "seeweb" "Seeweb"
    Shadeform "shadeform" "Shadeform"
    Yotta "yotta" "Yotta"
    Mithril "mithril" "Mithril"
    Verda "verda" "Verda"
}

impl Cloud {
    /// The cloud of that name, in any case; `k8s` and `digitalocean` are other names of two.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = match name.to_lowercase().as_str() {
            "k8s" => "kubernetes".to_owned(),
            "digitalocean" => "do".to_owned(),
            other => other.to_owned(),
        };
        Self::ALL.iter().copied().chain([Self::Local]).find(|cloud| cloud.name() == name)
    }
}
