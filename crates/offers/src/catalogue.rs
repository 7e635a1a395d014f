//! Price lists.

use placement::Catalogue;
use placement::catalogue::CatalogueError;
use std::io;
use std::path::{Path, PathBuf};

/// Where SkyPilot keeps its price lists, below the home.
pub const CATALOGUE: &str = ".sky/catalogs/v8";

/// Why price lists cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("{0} is no folder: fetch its price lists (`sky catalog import`) and name the folder.")]
    Address(String),
    #[error("the price lists in {} cannot be read", .0.display())]
    Folder(PathBuf, #[source] io::Error),
    #[error("{} cannot be read", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error("{} is no price list", .0.display())]
    List(PathBuf, #[source] CatalogueError),
}

/// The price lists of a folder: `CLOUD/vms.csv`, `CLOUD/images.csv`, `common/accelerators.csv`, `common/metadata.csv`. One that nobody
/// named may be missing.
///
/// # Errors
/// A list cannot be read, or is none.
pub fn read_catalogue(folder: &Path, named: bool) -> Result<Catalogue, ListError> {
    let shown = folder.display().to_string();
    if named && shown.contains("://") {
        return Err(ListError::Address(shown));
    }
    let mut catalogue = Catalogue::default();
    let clouds = match std::fs::read_dir(folder) {
        Ok(clouds) => clouds,
        Err(_) if !named => return Ok(catalogue),
        Err(error) => return Err(ListError::Folder(folder.to_owned(), error)),
    };
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    for cloud in clouds.flatten() {
        let name = cloud.file_name().to_string_lossy().into_owned();
        let list = std::fs::read_dir(cloud.path()).into_iter().flatten().flatten();
        files.extend(list.map(|file| (name.clone(), file.path())).filter(|(_, path)| path.is_file()));
    }
    for (cloud, path) in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !matches!(name.as_str(), "vms.csv" | "images.csv" | "accelerators.csv" | "metadata.csv") {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|error| ListError::File(path.clone(), error))?;
        catalogue.add(&cloud, &name, &text).map_err(|error| ListError::List(path, error))?;
    }
    Ok(catalogue)
}
