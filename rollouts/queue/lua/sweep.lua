-- Ends leases and delays whose time is over. Returns the keys that need a message, or need theirs again.

local resend_ms, limit, first_ms, longest_ms = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local unsent = {}

local function list_over(place)
    return call('ZRANGEBYSCORE', place, '-inf', text(now), 'LIMIT', 0, limit)
end

for _, key in ipairs(list_over(processing)) do
    if reclaim(key, resend_ms, first_ms, longest_ms) then
        unsent[#unsent + 1] = key
    end
end
for _, key in ipairs(list_over(delayed)) do
    call('ZREM', delayed, key)
    if make_due(key, resend_ms) then
        unsent[#unsent + 1] = key
    end
end
-- A key that became due above is not found again: its time in resend lies in the future.
for _, key in ipairs(list_over(resend)) do
    local age = now - call('ZSCORE', ready, key)
    call('ZADD', resend, text(now + math.max(age, resend_ms)), key)
    unsent[#unsent + 1] = key
end
return unsent
