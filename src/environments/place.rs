//! Parses the URLs of package sources. Pure.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sandfork_egress::host::{Authority, Host};

/// The URL of a package source, without credentials.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// The URL without credentials.
    pub url: String,
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// User and password, as for HTTP basic authentication.
    pub user: Option<String>,
}

impl Place {
    /// Parses the URL of a pip option.
    ///
    /// # Errors
    /// If it is not an http or https URL.
    pub fn read(option: &str, url: &str) -> Result<Self, String> {
        let refused = || {
            // The part after the last `@` has no password.
            let shown = url.rsplit('@').next().unwrap_or_default();
            format!(
                "pip's `{option}` names `{shown}`, which is neither an http or https URL nor a directory: correct it in pip's \
                 configuration or with `--index-url`"
            )
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(refused)?;
        let usual = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err(refused()),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let place: Authority = place.parse().map_err(|_| refused())?;
        // An unescaped `/` or `#` in a password would make the rest of it part of the path.
        if !path.chars().all(|c| c.is_ascii_graphic() && c != '@') {
            return Err(refused());
        }
        let user = user.map(|user| match user.split_once(':') {
            Some((name, password)) => format!("{}:{}", decoded(name), decoded(password)),
            // A lone token is the user name.
            None => format!("{}:", decoded(user)),
        });
        Ok(Self {
            url: format!("{scheme}://{place}{path}"),
            host: place.host,
            port: place.port.unwrap_or(usual),
            user,
        })
    }
}

/// Decodes the percent-encoding of a part of a URL.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let escaped = behind
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = escaped
            .filter(|_| first == b'%')
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the file URL of a path.
pub fn file_url(path: &Path) -> String {
    let mut url = "file://".to_owned();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-+!".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_url_is_percent_encoded() {
        let url = file_url(Path::new("/a b/é#%/c-1.0+cpu.whl"));
        assert_eq!(url, "file:///a%20b/%C3%A9%23%25/c-1.0+cpu.whl");
    }
}
