-- Ends a claim after a success, forgets the failures of the key and makes it due after a delay.

local key, token, resend_ms, delay_ms = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ended = finish(key, token, resend_ms)
if ended ~= 'lost' then
    call('HDEL', failures, key)
    delay(key, delay_ms)
end
return ended
