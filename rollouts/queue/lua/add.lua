-- Makes keys due. Returns those that need a message.

local resend_ms = ARGV[2]
local unsent = {}
for place = 3, #ARGV do
    if make_due(ARGV[place], resend_ms) then
        unsent[#unsent + 1] = ARGV[place]
    end
end
return unsent
