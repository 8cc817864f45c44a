-- Ends a claim after a success, and forgets the failures of the key. With requeue the key is due at once.

local key, token, resend_ms, requeue = ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
local ended = finish(key, token, resend_ms)
if ended ~= 'lost' then
    call('HDEL', failures, key)
end
if ended == 'free' and requeue then
    put_ready(key, text(now), resend_ms)
    return 'due'
end
return ended
