//! Which tenants may have sessions whose memory the host does not have.

use std::fs::read_to_string;
use std::sync::Arc;

use crate::config::Config;
use crate::sandboxes::Variant;
use crate::tenant::Tenant;

/// Names each tenant whose sessions may come to use more than the host's memory together.
pub fn warn(config: &Config, tenants: &[Arc<Tenant>]) {
    // Without the file, nothing is known.
    let Some(has) = read_to_string("/proc/meminfo")
        .ok()
        .as_deref()
        .and_then(total)
    else {
        return;
    };
    for tenant in tenants {
        let quota = &config.profile(&tenant.name).quota;
        let each = tenant.sandboxes.memory(Variant::default());
        let all = each.saturating_mul(quota.sessions as u64);
        let most = quota.memory.map_or(all, |memory| memory.min(all));
        if most > has {
            tracing::warn!(
                tenant = %tenant.name,
                "the {} sessions that the tenant may have may come to use {most} bytes of memory, and the host has {has}: lower \
                 `sessions` or `limits.memory`, or set `memory`",
                quota.sessions
            );
        }
    }
}

/// The bytes of memory that the host has (`proc_meminfo(5)`).
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_how_much_there_is() {
        assert_eq!(
            total("MemTotal:       16 kB\nMemFree: 1 kB\n"),
            Some(16 << 10)
        );
        assert_eq!(total(""), None);
    }
}
