-- Each connection waits THINK_LOW to THINK_HIGH ms before each request. Prints its results as JSON.
local low, high = tonumber(os.getenv("THINK_LOW")), tonumber(os.getenv("THINK_HIGH"))

if high and high > 0 then
  function delay()
    return math.random(low, high)
  end
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '{"duration_us":%d,"requests":%d,"errors":%d,"p50":%d,"p90":%d,"p99":%d,"max":%d,"mean":%.0f}\n',
    summary.duration, summary.requests,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency:percentile(50), latency:percentile(90), latency:percentile(99), latency.max, latency.mean))
end
