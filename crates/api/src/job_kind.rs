//! The kinds of jobs, and how each is named: `NAME`, `KIND/NAME` or `KIND.GROUP/NAME`, as kubectl writes them.

/// The kinds of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    Train,
    Mpi,
    /// A search for parameters, whose trials are TrainJobs.
    Search,
}

impl JobKind {
    /// In the order in which a bare name is looked up.
    pub const ALL: [Self; 3] = [Self::Train, Self::Mpi, Self::Search];

    /// As messages call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Train => "TrainJob",
            Self::Mpi => crate::mpi::KIND,
            Self::Search => "OptimizationJob",
        }
    }

    pub fn singular(self) -> &'static str {
        match self {
            Self::Train => "trainjob",
            Self::Mpi => "mpijob",
            Self::Search => "optimizationjob",
        }
    }

    pub fn group(self) -> &'static str {
        match self {
            Self::Train | Self::Search => crate::trainer::GROUP,
            Self::Mpi => crate::mpi::GROUP,
        }
    }

    /// `trainjob.trainer.kubeflow.org/NAME`: what answers print and every command accepts.
    pub fn full_name(self, name: &str) -> String {
        format!("{}.{}/{name}", self.singular(), self.group())
    }

    /// The shortest name that every command accepts and no other kind can have.
    pub fn short_name(self, name: &str) -> String {
        match self {
            Self::Train => name.to_owned(),
            Self::Mpi | Self::Search => format!("{}/{name}", self.singular()),
        }
    }

    /// The kind of this word: singular, plural, or either with its group, in any case.
    pub fn of(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        Self::ALL.into_iter().find(|kind| {
            let bare = word.strip_suffix(&format!(".{}", kind.group())).unwrap_or(&word);
            bare == kind.singular() || bare.strip_suffix('s') == Some(kind.singular())
        })
    }
}
