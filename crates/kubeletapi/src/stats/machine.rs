//! The machine's own figures, from the kernel's files.

use jiff::Timestamp;

use super::types::{Interface, Network, Rlimit};

/// Bytes of memory of the machine, from `/proc/meminfo`.
pub fn memory_total(meminfo: &str) -> u64 {
    kibibytes(meminfo, "MemTotal:")
}

/// Bytes of swap of the machine, from `/proc/meminfo`.
pub fn swap_total(meminfo: &str) -> u64 {
    kibibytes(meminfo, "SwapTotal:")
}

fn kibibytes(meminfo: &str, word: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(word));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// When the machine was started, from `/proc/stat`.
pub fn boot_time(stat: &str) -> Timestamp {
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    let seconds = line.and_then(|seconds| seconds.trim().parse().ok());
    seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The interfaces of `/proc/net/dev` without the loopback one; the main one is that of the default route in
/// `/proc/net/route`.
pub fn network(dev: &str, route: &str, time: Timestamp) -> Option<Network> {
    let interfaces: Vec<Interface> = dev.lines().filter_map(interface).filter(|one| one.name != "lo").collect();
    let default = route.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let name = fields.next()?;
        (fields.next()? == "00000000").then_some(name)
    });
    let main = interfaces.iter().find(|one| Some(one.name.as_str()) == default).or(interfaces.first())?.clone();
    Some(Network { time, main, interfaces })
}

fn interface(line: &str) -> Option<Interface> {
    let (name, counters) = line.split_once(':')?;
    let counters: Vec<u64> = counters.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    Some(Interface {
        name: name.trim().to_owned(),
        rx_bytes: *counters.first()?,
        rx_errors: *counters.get(2)?,
        tx_bytes: *counters.get(8)?,
        tx_errors: *counters.get(10)?,
        rx_packets: *counters.get(1)?,
        rx_dropped: *counters.get(3)?,
        tx_packets: *counters.get(9)?,
        tx_dropped: *counters.get(11)?,
    })
}

/// Processes, from `/proc/sys/kernel/pid_max` and `/proc/loadavg`.
pub fn processes(pid_max: &str, loadavg: &str, time: Timestamp) -> Option<Rlimit> {
    let curproc = loadavg.split_whitespace().nth(3)?.split('/').nth(1)?.parse().ok()?;
    Some(Rlimit { time, maxpid: pid_max.trim().parse().ok()?, curproc })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(memory_total("MemTotal:       2048 kB\nMemFree: 1 kB\n"), 2 << 20);
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\n").as_second(), 1_700_000_000);
        let dev = "Inter-| Receive | Transmit\n face |bytes packets|\n\
                   lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n\
                   eth1: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n\
                   eth0: 10 1 2 5 0 0 0 0 30 1 4 6 0 0 0 0\n";
        let route = "Iface\tDestination\tGateway\neth1\t0000A8C0\t0\neth0\t00000000\t0100000A\n";
        let network = network(dev, route, now).unwrap();
        let eth0 = Interface {
            name: "eth0".into(),
            rx_bytes: 10,
            rx_errors: 2,
            tx_bytes: 30,
            tx_errors: 4,
            rx_packets: 1,
            rx_dropped: 5,
            tx_packets: 1,
            tx_dropped: 6,
        };
        assert_eq!((network.main, network.interfaces.len()), (eth0, 2));
        let processes = processes("4194304\n", "0.1 0.2 0.3 2/345 6789\n", now).unwrap();
        assert_eq!((processes.maxpid, processes.curproc), (4_194_304, 345));
        assert_eq!(memory_total(""), 0);
    }
}
