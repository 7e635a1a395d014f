//! Price lists of clouds, in SkyPilot's columns (catalogue schema v8): what can be had where, and for how much.

use std::collections::BTreeMap;

use crate::cloud::Cloud;

/// Why a price list cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// The file is no CSV.
    #[error("line {line}: {message}")]
    Malformed {
        /// The line.
        line: u64,
        /// What is wrong.
        message: String,
    },
    /// A column that must be there is not.
    #[error("the column {0} is missing")]
    Column(&'static str),
}

/// What a cloud offers: a machine, or (GCP) accelerators that are priced apart from their machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The machine's type; none for accelerators priced apart.
    pub instance_type: Option<String>,
    /// Name and count.
    pub accelerators: Option<(String, f64)>,
    /// Processors.
    pub cpus: Option<f64>,
    /// GiB.
    pub memory: Option<f64>,
    /// Dollars an hour.
    pub price: Option<f64>,
    /// Dollars an hour of one that may be taken away.
    pub spot_price: Option<f64>,
    /// The region.
    pub region: String,
    /// The zone, where the cloud has any.
    pub zone: Option<String>,
    /// The disk inside: kind (`ssd`, `hdd`), whether it is NVMe, GB of one, how many.
    pub local_disk: Option<LocalDisk>,
    /// The processor's architecture.
    pub arch: Option<String>,
    /// Of an accelerator: GiB of one, where the list has it.
    pub gpu: Option<Option<f64>>,
    /// A generation of machines (Azure).
    pub generation: Option<String>,
}

/// A disk inside a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalDisk {
    /// `ssd` or `hdd`.
    pub kind: String,
    /// Whether it is NVMe.
    pub nvme: bool,
    /// GB of all of them.
    pub gigabytes: f64,
}

/// A cloud's price list, and where in it what stands.
#[derive(Clone, Debug, Default, PartialEq)]
struct List {
    offers: Vec<Offer>,
    /// Whether it tells zones apart.
    zoned: bool,
    by_type: BTreeMap<String, Vec<usize>>,
    /// By the accelerator's name in small letters.
    by_accelerator: BTreeMap<String, Vec<usize>>,
}

/// An accelerator's memory and maker.
#[derive(Clone, Debug, PartialEq)]
struct Device {
    name: String,
    gigabytes: f64,
    maker: String,
}

/// Everything that is known of what can be had.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalogue {
    lists: BTreeMap<Cloud, List>,
    /// Canonical names of accelerators, and the clouds (by the name of tables) that have them.
    names: Vec<(String, Vec<String>)>,
    devices: Vec<Device>,
    /// Tags of images and their regions (none: all).
    images: BTreeMap<Cloud, Vec<(String, Option<String>)>>,
}

impl Offer {
    /// Dollars an hour, of one that may be taken away or of one that may not.
    pub fn price(&self, spot: bool) -> Option<f64> {
        if spot { self.spot_price } else { self.price }.filter(|price| price.is_finite())
    }
}

impl Catalogue {
    /// Adds a file: `vms.csv` and `images.csv` of a cloud, `accelerators.csv` and `metadata.csv` of `common`. Others are passed over.
    ///
    /// # Errors
    /// For what is no CSV with the columns that it must have.
    pub fn add(&mut self, folder: &str, file: &str, text: &str) -> Result<(), CatalogueError> {
        match (folder, file, Cloud::from_name(folder)) {
            ("common", "accelerators.csv", _) => self.names = accelerator_names(text)?,
            ("common", "metadata.csv", _) => self.devices = devices(text)?,
            (_, "vms.csv", Some(cloud)) => {
                self.lists.insert(cloud, list(text)?);
            }
            (_, "images.csv", Some(cloud)) => {
                self.images.insert(cloud, images(text)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// What a cloud offers, in the order of its file.
    pub fn offers(&self, cloud: Cloud) -> &[Offer] {
        self.lists.get(&cloud).map_or(&[], |list| list.offers.as_slice())
    }

    /// Clouds whose price lists are here.
    pub fn clouds(&self) -> impl Iterator<Item = Cloud> {
        self.lists.keys().copied()
    }

    /// Whether a cloud's price list tells zones apart.
    pub fn has_zones(&self, cloud: Cloud) -> bool {
        self.lists.get(&cloud).is_some_and(|list| list.zoned)
    }

    /// Offers of an instance type, in the order of the file.
    pub fn of_type(&self, cloud: Cloud, instance_type: &str) -> impl Iterator<Item = &Offer> {
        self.lists.get(&cloud).into_iter().flat_map(move |list| {
            let rows = list.by_type.get(instance_type).map_or(&[][..], Vec::as_slice);
            rows.iter().filter_map(|row| list.offers.get(*row))
        })
    }

    /// Offers with an accelerator, its name in any case, in the order of the file.
    pub fn of_accelerator(&self, cloud: Cloud, name: &str) -> impl Iterator<Item = &Offer> {
        let name = name.to_lowercase();
        self.lists.get(&cloud).into_iter().flat_map(move |list| {
            let rows = list.by_accelerator.get(&name).map_or(&[][..], Vec::as_slice);
            rows.iter().filter_map(|row| list.offers.get(*row))
        })
    }

    /// Accelerators with so much memory in GB (`at_least`: or more), of that maker if one is named.
    pub fn accelerators_by_memory(&self, gigabytes: f64, at_least: bool, maker: Option<&str>) -> Vec<String> {
        #[expect(clippy::float_cmp, reason = "sizes that files name")]
        let fits =
            |device: &&Device| if at_least { device.gigabytes >= gigabytes } else { device.gigabytes == gigabytes };
        let by_maker = |device: &&Device| maker.is_none_or(|maker| device.maker.eq_ignore_ascii_case(maker));
        self.devices.iter().filter(fits).filter(by_maker).map(|device| device.name.clone()).collect()
    }

    /// Names of accelerators and the clouds that have them.
    pub fn accelerator_names(&self) -> &[(String, Vec<String>)] {
        &self.names
    }

    /// The first offer of an instance type.
    pub fn machine(&self, cloud: Cloud, instance_type: &str) -> Option<&Offer> {
        self.of_type(cloud, instance_type).next()
    }

    /// Processors and memory in GiB of an instance type. Where machines are pods, the type says both: `4CPU--16GB--V100:1`.
    pub fn size_of(&self, cloud: Cloud, instance_type: &str) -> Option<(Option<f64>, Option<f64>)> {
        match cloud {
            Cloud::Kubernetes | Cloud::Ssh | Cloud::Slurm => {
                let mut parts = instance_type.split("--");
                let cpus = parts.next()?.strip_suffix("CPU")?.parse().ok()?;
                let memory = parts.next()?.strip_suffix("GB")?.parse().ok()?;
                Some((Some(cpus), Some(memory)))
            }
            _ => self.machine(cloud, instance_type).map(|offer| (offer.cpus, offer.memory)),
        }
    }

    /// Memory in GiB of an instance type.
    pub fn memory_of(&self, cloud: Cloud, instance_type: &str) -> Option<f64> {
        self.size_of(cloud, instance_type)?.1
    }

    /// Whether a tag names an image of a cloud in a region.
    pub fn has_image(&self, cloud: Cloud, tag: &str, region: Option<&str>) -> bool {
        let images = self.images.get(&cloud).map_or(&[][..], Vec::as_slice);
        images
            .iter()
            .any(|(known, place)| known == tag && (place.is_none() || region.is_none() || place.as_deref() == region))
    }
}

/// Columns of a CSV by name.
struct Table {
    columns: BTreeMap<String, usize>,
    rows: Vec<csv::StringRecord>,
}

impl Table {
    fn read(text: &str, needed: &[&'static str]) -> Result<Self, CatalogueError> {
        let malformed = |error: csv::Error| CatalogueError::Malformed {
            line: error.position().map_or(0, csv::Position::line),
            message: error.to_string(),
        };
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
        let columns: BTreeMap<String, usize> =
            reader.headers().map_err(malformed)?.iter().enumerate().map(|(at, name)| (name.to_owned(), at)).collect();
        match needed.iter().find(|name| !columns.contains_key(**name)) {
            Some(missing) => Err(CatalogueError::Column(missing)),
            None => Ok(Self { columns, rows: reader.into_records().collect::<Result<_, _>>().map_err(malformed)? }),
        }
    }

    /// A cell; nothing where it is empty or its column is not there.
    fn cell<'a>(&self, row: &'a csv::StringRecord, column: &str) -> Option<&'a str> {
        row.get(*self.columns.get(column)?).filter(|text| !text.is_empty())
    }

    fn number(&self, row: &csv::StringRecord, column: &str) -> Option<f64> {
        self.cell(row, column)?.parse().ok()
    }
}

fn list(text: &str) -> Result<List, CatalogueError> {
    let table = Table::read(
        text,
        &["InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "Price", "Region"],
    )?;
    let text = |row, column| table.cell(row, column).map(str::to_owned);
    let offer = |row| {
        let disk = table.number(row, "LocalDiskSize").map(|size| LocalDisk {
            kind: text(row, "LocalDiskType").unwrap_or_default(),
            nvme: table.cell(row, "NVMeSupported") == Some("True"),
            gigabytes: size * table.number(row, "LocalDiskCount").unwrap_or(1.0),
        });
        Offer {
            instance_type: text(row, "InstanceType"),
            accelerators: text(row, "AcceleratorName")
                .map(|name| (name, table.number(row, "AcceleratorCount").unwrap_or(1.0))),
            cpus: table.number(row, "vCPUs"),
            memory: table.number(row, "MemoryGiB"),
            price: table.number(row, "Price"),
            spot_price: table.number(row, "SpotPrice"),
            region: text(row, "Region").unwrap_or_default(),
            zone: text(row, "AvailabilityZone"),
            local_disk: disk,
            gpu: table.cell(row, "GpuInfo").map(device_memory),
            arch: text(row, "Arch"),
            generation: text(row, "Generation"),
        }
    };
    let offers: Vec<Offer> = table.rows.iter().map(offer).collect();
    let mut list = List { zoned: table.columns.contains_key("AvailabilityZone"), ..List::default() };
    for (row, offer) in offers.iter().enumerate() {
        if let Some(name) = &offer.instance_type {
            list.by_type.entry(name.clone()).or_default().push(row);
        }
        if let Some((name, _)) = &offer.accelerators {
            list.by_accelerator.entry(name.to_lowercase()).or_default().push(row);
        }
    }
    list.offers = offers;
    Ok(list)
}

/// GiB of the first accelerator in a Python dictionary: `… 'SizeInMiB': 24576 …`.
fn device_memory(info: &str) -> Option<f64> {
    let (_, rest) = info.split_once("'SizeInMiB':")?;
    let number: String = rest.trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    Some(number.parse::<f64>().ok()? / 1024.0)
}

fn accelerator_names(text: &str) -> Result<Vec<(String, Vec<String>)>, CatalogueError> {
    let table = Table::read(text, &["AcceleratorName", "Clouds"])?;
    let clouds = |row| {
        let list = table.cell(row, "Clouds").unwrap_or_default().trim_matches(['[', ']']);
        list.split(',')
            .map(|name| name.trim().trim_matches(['\'', '"']).to_owned())
            .filter(|name| !name.is_empty())
            .collect()
    };
    Ok(table
        .rows
        .iter()
        .filter_map(|row| Some((table.cell(row, "AcceleratorName")?.to_owned(), clouds(row))))
        .collect())
}

fn devices(text: &str) -> Result<Vec<Device>, CatalogueError> {
    let table = Table::read(text, &["GPU", "MemoryGB", "Manufacturer"])?;
    let device = |row| {
        Some(Device {
            name: table.cell(row, "GPU")?.to_owned(),
            gigabytes: table.number(row, "MemoryGB")?,
            maker: table.cell(row, "Manufacturer").unwrap_or_default().to_owned(),
        })
    };
    Ok(table.rows.iter().filter_map(device).collect())
}

fn images(text: &str) -> Result<Vec<(String, Option<String>)>, CatalogueError> {
    let table = Table::read(text, &["Tag", "Region"])?;
    Ok(table
        .rows
        .iter()
        .filter_map(|row| Some((table.cell(row, "Tag")?.to_owned(), table.cell(row, "Region").map(str::to_owned))))
        .collect())
}
