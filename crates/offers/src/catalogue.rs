//! Price lists.

use placement::Catalogue;
use std::path::{Path, PathBuf};

/// Where SkyPilot keeps its price lists, below the home.
pub const CATALOGUE: &str = ".sky/catalogs/v8";

/// The price lists of a folder: `CLOUD/vms.csv`, `CLOUD/images.csv`, `common/accelerators.csv`, `common/metadata.csv`. One that nobody
/// named may be missing.
///
/// # Errors
/// A list cannot be read, or is none.
pub fn read_catalogue(folder: &Path, named: bool) -> Result<Catalogue, String> {
    let shown = folder.display();
    if named && shown.to_string().contains("://") {
        return Err(format!("{shown} is no folder: fetch its price lists (`sky catalog import`) and name the folder."));
    }
    let mut catalogue = Catalogue::default();
    let clouds = match std::fs::read_dir(folder) {
        Ok(clouds) => clouds,
        Err(_) if !named => return Ok(catalogue),
        Err(error) => return Err(format!("the price lists in {shown} cannot be read: {error}")),
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
        let shown = path.display();
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{shown} cannot be read: {error}"))?;
        catalogue.add(&cloud, &name, &text).map_err(|error| format!("{shown} is no price list: {error}"))?;
    }
    Ok(catalogue)
}
