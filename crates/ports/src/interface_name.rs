//! Names of network interfaces, for port types that have one.

use crate::OpenError;

/// Longest name of an interface, bytes (`IFNAMSIZ` less its terminating zero).
const MAX_NAME: usize = libc::IFNAMSIZ - 1;

/// Checks the option `interface`.
pub(crate) fn check(interface: Option<&str>) -> Result<(), OpenError> {
    let Some(name) = interface else { return Ok(()) };
    check_name(name).map_err(|why| {
        OpenError(format!("interface `{name}` cannot be the name of a network interface: {why}"))
    })
}

/// Returns the name of a port's interface: the option `interface`, or else the name of the port.
pub(crate) fn of_port(interface: Option<&str>, port: &str) -> Result<String, OpenError> {
    if let Some(name) = interface {
        return Ok(name.to_owned());
    }
    check_name(port).map_err(|why| {
        OpenError(format!(
            "the port's name `{port}` cannot be the name of a network interface: {why}; set `interface`"
        ))
    })?;
    Ok(port.to_owned())
}

/// Returns whether a network interface can have this name.
pub fn is_interface_name(name: &str) -> bool {
    check_name(name).is_ok()
}

/// Refuses names that the kernel refuses (`dev_valid_name`), and `%`, which it reads as a template.
fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("1 to {MAX_NAME} bytes are expected"));
    }
    if name.len() > MAX_NAME {
        return Err(format!("it is too long: {} bytes, the limit is {MAX_NAME}", name.len()));
    }
    if name == "." || name == ".." {
        return Err("it is the name of a directory".to_owned());
    }
    match name.chars().find(|c| matches!(c, '/' | ':' | '%') || c.is_whitespace() || c.is_control()) {
        Some(bad) => Err(format!("it must not contain {bad:?}")),
        None => Ok(()),
    }
}
