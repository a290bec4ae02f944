//! How long to wait before trying again.

use std::time::Duration;

/// Exponential delays with a cap and jitter.
#[derive(Debug, Clone)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    jitter: f64,
    failures: u32,
}

impl Backoff {
    /// Delays of `base`, `2·base`, ... up to `cap`, each stretched by a random share of up to `jitter`.
    pub fn new(base: Duration, cap: Duration, jitter: f64) -> Self {
        Self { base, cap, jitter, failures: 0 }
    }

    /// As client-go's reflectors have it: 800 ms to 30 s, up to doubled by chance.
    pub fn reflector() -> Self {
        Self::new(Duration::from_millis(800), Duration::from_secs(30), 1.0)
    }

    pub fn delay(&mut self) -> Duration {
        let delay = exponential(self.base, self.cap, self.failures);
        self.failures = self.failures.saturating_add(1);
        delay.mul_f64(1.0 + self.jitter * rand::random::<f64>())
    }

    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// `base · 2^failures`, at most `cap`.
pub(crate) fn exponential(base: Duration, cap: Duration, failures: u32) -> Duration {
    2_u32.checked_pow(failures).and_then(|factor| base.checked_mul(factor)).map_or(cap, |delay| delay.min(cap))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_start_over_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5), 0.0);
        let delays: Vec<u64> = (0..4).map(|_| backoff.delay().as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 5]);
        backoff.reset();
        assert_eq!(backoff.delay(), Duration::from_secs(1));
        assert_eq!(exponential(Duration::from_millis(5), Duration::from_secs(1000), 4_000), Duration::from_secs(1000));
    }
}
