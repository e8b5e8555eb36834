-- `:checkhealth outpost`.
local M = {}

function M.check()
  vim.health.start("outpost")
  if vim.fn.has("nvim-0.11") == 1 then
    vim.health.ok("Neovim " .. tostring(vim.version()))
  else
    vim.health.error("Neovim 0.11 or later is needed")
  end
  if vim.fn.executable("git") == 1 then
    vim.health.ok("git is there")
  else
    vim.health.error("git is not in PATH")
  end
  local config = vim.lsp.config.outpost
  local program = config and config.cmd and type(config.cmd) == "table" and config.cmd[1] or "outpost-lsp"
  if vim.fn.executable(program) ~= 1 then
    vim.health.error(program .. " is not in PATH", { "pip install outpost-lsp", "or set cmd in vim.lsp.config('outpost', { cmd = ... })" })
    return
  end
  vim.health.ok(program .. " is there")
  local client = vim.lsp.get_clients({ name = "outpost" })[1]
  if not client then
    vim.health.warn("no server runs in this session", { "call vim.lsp.enable('outpost') and open a file of a git repository" })
    return
  end
  vim.health.ok("server " .. ((client.server_info or {}).version or "of unknown version"))
  local answer = client:request_sync(
    "workspace/executeCommand", { command = "outpost.doctor", arguments = { vim.empty_dict() } }, 30000, 0
  )
  for _, check in ipairs(answer and answer.result and answer.result.checks or {}) do
    local tell = check.status == "ok" and vim.health.ok or check.status == "warn" and vim.health.warn or vim.health.error
    tell(check.name .. ": " .. check.detail)
  end
end

return M
