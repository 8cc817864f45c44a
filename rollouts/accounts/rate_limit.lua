-- Takes some tokens out of a bucket, or puts some back if their number is negative. Returns 0, or for how many
-- milliseconds to wait if the bucket is empty; then nothing is taken.
--
-- The key holds when the bucket will be full again. To take a token out moves that time by period / count. If it would
-- then lie further ahead than a whole period, the bucket is empty.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local period, count, taken = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now) + taken * period / count
if full - period > now then
    return math.ceil(full - period - now)
end
if full > now then
    redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', math.ceil(full - now))
else
    redis.call('DEL', KEYS[1])
end
return 0
