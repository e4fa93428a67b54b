//! Places of packages, as URLs name them. Pure.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sandfork_egress::host::{Authority, Host};

/// A place of packages on the network, without its user.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// Its URL.
    pub url: String,
    /// Its host.
    pub host: Host,
    /// Its port.
    pub port: u16,
    /// User and password, as in the header of a request.
    pub user: Option<String>,
}

impl Place {
    /// Reads the URL that an option of pip has.
    ///
    /// # Errors
    /// If it is none of http or https.
    pub fn read(option: &str, url: &str) -> Result<Self, String> {
        let refused = || {
            // Behind an `@` there is no password.
            let shown = url.rsplit('@').next().unwrap_or_default();
            format!(
                "pip's `{option}` names `{shown}`, which is no URL of http or https and no directory: correct it in pip's \
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
        // A password with a `/` or a `#` that is not escaped would be a part of the path.
        if !path.chars().all(|c| c.is_ascii_graphic() && c != '@') {
            return Err(refused());
        }
        let user = user.map(|user| match user.split_once(':') {
            Some((name, password)) => format!("{}:{}", decoded(name), decoded(password)),
            // A token alone stands for the user.
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

/// A part of a URL without its escapes.
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

/// The URL of a file.
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
    fn the_url_of_a_file_is_plain() {
        let url = file_url(Path::new("/a b/é#%/c-1.0+cpu.whl"));
        assert_eq!(url, "file:///a%20b/%C3%A9%23%25/c-1.0+cpu.whl");
    }
}
