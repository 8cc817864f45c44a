-- Claims a key that is due. Returns the epoch of the claim and the number of the attempt, or nothing if it is not due.

local key, token, lease_ms, longest_ms, owner = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local attempt = (call('HGET', failures, key) or 0) + 1
local number, current = claim_of(key)
if current == token then
    return {number, attempt}
end
if call('ZREM', ready, key) == 0 then
    return nil
end
call('ZREM', resend, key)
number = call('INCR', epoch)
call('ZADD', processing, text(now + lease_ms), key)
call('HSET', claims, key, table.concat({number, token, text(now + longest_ms), owner}, ':'))
return {number, attempt}
