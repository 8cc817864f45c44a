-- What every script of the queue begins with. Scores are milliseconds of Redis's clock: when a key became due (ready,
-- dirty), when to send its message again (resend), when its lease ends (processing), when it will be due (delayed).

local ready, resend, processing, dirty, delayed, claims, failures, epoch = unpack(KEYS)
local call = redis.call

local now = tonumber(ARGV[1])
if not now then
    local time = call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Scores are passed as text: Lua prints numbers with fewer digits than a time in milliseconds has.
local function text(number)
    return string.format('%.0f', number)
end

local function put_ready(key, since, resend_ms)
    call('ZADD', ready, since, key)
    call('ZADD', resend, text(now + resend_ms), key)
end

-- Returns whether a message must be sent.
local function make_due(key, resend_ms)
    if call('ZSCORE', processing, key) then
        call('ZADD', dirty, 'NX', text(now), key)
        return false
    end
    if call('ZSCORE', ready, key) then
        return false
    end
    put_ready(key, text(now), resend_ms)
    return true
end

local function delay(key, delay_ms)
    local before = call('ZSCORE', delayed, key)
    if not before or now + delay_ms < tonumber(before) then
        call('ZADD', delayed, text(now + delay_ms), key)
    end
end

-- Returns the claim on a key: its epoch, its token, when it ends at the latest, and the process that holds it.
local function claim_of(key)
    return string.match(call('HGET', claims, key) or '', '^(%d+):([^:]*):(%d*):(.*)$')
end

local function is_claimed_by(key, token)
    local _, current, latest = claim_of(key)
    return current == token and tonumber(call('ZSCORE', processing, key)) > now and tonumber(latest) > now
end

-- Ends a claim whose worker is gone. The key is due once, whether or not it is dirty. It waits if this is not the first
-- failure in a row. Returns whether a message must be sent.
local function reclaim(key, resend_ms, first_ms, longest_ms)
    call('ZREM', processing, key)
    call('HDEL', claims, key)
    local is_dirty = call('ZREM', dirty, key) == 1
    local count = call('HINCRBY', failures, key, 1)
    if is_dirty or count == 1 then
        return make_due(key, resend_ms)
    end
    delay(key, math.min(first_ms * 2 ^ math.min(count - 2, 16), longest_ms))
    return false
end

-- Ends a claim. Returns 'free' or 'due', or 'lost' if the claim has ended before; then nothing has changed.
local function finish(key, token, resend_ms)
    if not is_claimed_by(key, token) then
        return 'lost'
    end
    call('ZREM', processing, key)
    call('HDEL', claims, key)
    local since = call('ZSCORE', dirty, key)
    if not since then
        return 'free'
    end
    call('ZREM', dirty, key)
    put_ready(key, since, resend_ms)
    return 'due'
end
